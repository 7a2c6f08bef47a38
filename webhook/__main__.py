"""``python -m webhook`` is ``kubevirt-webhook``."""

from webhook.cli.main import main

main(prog_name="kubevirt-webhook")
