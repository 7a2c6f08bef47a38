"""Options that several commands have: each reads the same everywhere."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import click

if TYPE_CHECKING:
    from webhook.cluster.source import Cluster
    from webhook.k8s.client.identity import Kubeconfig

_Decorator: TypeAlias = Callable[[Any], Any]
# Namespace and name of a VM; the namespace is empty where the options name none.
VmName: TypeAlias = tuple[str, str]


class InputPath(click.Path):
    """A path. An empty text, which an unset variable of a shell leaves, is not the working directory."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path, or an error of usage."""
        if value == "":
            self.fail("an empty text names no file; is a variable unset?", param, ctx)
        return super().convert(value, param, ctx)


class WholeNumber(click.IntRange):
    """A number between two others, both included. The next option, where the number was forgotten, is none."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number, or an error of usage that says which ones there are."""
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            from webhook.errors import quote

            allowed = f"{self.min} or more" if self.max is None else f"from {self.min} to {self.max}"
            self.fail(f"{quote(str(value))} is not a whole number {allowed}", param, ctx)


PATH: Final = InputPath(path_type=Path)
# The rules are k8s.io/apimachinery's (IsDNS1123Label) and the distribution's (digest.DigestRegexp).
_is_label: Final = re.compile("[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?").fullmatch
_is_digest: Final = re.compile("[a-z0-9]+(?:[.+_-][a-z0-9]+)*:[0-9a-fA-F]{32,}").fullmatch


def _checked(what: str, is_valid: Callable[[str], bool], fix: str) -> Callable[..., str | None]:
    """Checks a text where it is given. An empty one, which an unset variable leaves, is not the default."""

    def check(_ctx: click.Context, _param: click.Parameter, value: str | None) -> str | None:
        if value == "":
            raise click.BadParameter(f"an empty text names no {what}; is a variable unset?")
        if value is not None and not is_valid(value):
            from webhook.errors import quote

            raise click.BadParameter(f"{quote(value)} is not a valid {what} name; {fix}")
        return value

    return check


def _is_image(text: str) -> bool:
    from webhook.images.manifests import parse_reference

    name, at, digest = text.partition("@")
    return parse_reference(name) is not None and (not at or _is_digest(digest) is not None)


_LOWER: Final = "use at most 63 lowercase letters, digits and -"
_NAMESPACE: Final = _checked("namespace", lambda text: _is_label(text) is not None, _LOWER)
_IMAGE: Final = _checked("image", _is_image, "use for example registry.example/kubevirt-webhook:1.0")


def _together(*options: _Decorator) -> _Decorator:
    """Options that stand together in every help, in their order."""
    return lambda command: functools.reduce(lambda made, option: option(made), reversed(options), command)


def _passed_as(name: str, make: Callable[..., Any], *options: _Decorator) -> _Decorator:
    """Options that stand together, passed as one argument: what a function makes of their values."""

    def decorate(command: Callable[..., Any]) -> Any:
        @functools.wraps(command)
        def run(*args: Any, **values: Any) -> Any:
            made = make(**{own: values.pop(own) for own in inspect.signature(make).parameters})
            return command(*args, **{name: made}, **values)

        return _together(*options)(run)

    return decorate


def config_option(default: str) -> _Decorator:
    """``--config FILE``, passed as ``config_file``; ``default`` says what applies without it."""
    text = f"Settings file.  [default: {default}]"
    return click.option("--config", "config_file", type=PATH, metavar="FILE", help=text)


def url_option(text: str) -> _Decorator:
    """``--url URL``."""
    return click.option("--url", default="", metavar="URL", help=f"{text} URL has the form https://HOST:PORT.")


_IMPERSONATION: Final = _together(
    click.option("--as", "as_user", default="", metavar="USER", help="User to impersonate."),
    click.option("--as-group", "as_groups", multiple=True, metavar="GROUP", help="Group to impersonate; repeatable."),
    click.option("--as-uid", "as_uid", default="", metavar="UID", help="UID to impersonate."),
)


def kubeconfig_option(default: str = "as kubectl") -> _Decorator:
    """``--kubeconfig FILE``, ``--as``, ``--as-group`` and ``--as-uid``, passed together as ``kubeconfig``.

    A command with this option gets a `webhook.k8s.client.identity.Kubeconfig`, or None without any of them; ``default``
    says what applies without ``--kubeconfig``.
    """
    option = click.option("--kubeconfig", type=PATH, metavar="FILE", help=f"Cluster to use.  [default: {default}]")
    return _passed_as("kubeconfig", _kubeconfig, option, _IMPERSONATION)


def _kubeconfig(kubeconfig: Path | None, as_user: str, as_uid: str, as_groups: tuple[str, ...]) -> Kubeconfig | None:
    from webhook.k8s.client.identity import Impersonation, Kubeconfig

    impersonation = Impersonation(as_user, as_uid, as_groups)
    # A mistake in the options is reported before anything is read.
    if kubeconfig is None and not impersonation.headers():
        return None
    return Kubeconfig(str(kubeconfig or ""), impersonation)


def namespace_option(text: str, *flags: str) -> _Decorator:
    """``-n NAMESPACE``, or an option with other flags, whose name is checked; None without it."""
    named = flags or ("-n", "--namespace")
    return click.option(*named, metavar="NAMESPACE", callback=_NAMESPACE, help=text)


def image_option(text: str, *, required: bool = False) -> _Decorator:
    """``--image IMAGE``, whose name is checked, passed as ``image``; None without it."""
    return click.option("--image", metavar="IMAGE", callback=_IMAGE, required=required, help=text)


def _vm_name(vm: str, namespace: str | None) -> VmName:
    """Namespace, if there is one, and name of a VM, from ``[NAMESPACE/]VM`` and -n.

    An `InputError` where they differ or are invalid.
    """
    from webhook.errors import InputError, quote
    from webhook.k8s.types.selectors import is_name

    before, slash, name = vm.rpartition("/")
    if slash and namespace and namespace != before:
        what = f"the argument names the namespace {quote(before)}, but -n names {quote(namespace)}"
        raise InputError(what, vm, "remove one of them")
    where = before if slash else namespace or ""
    for text, what in ((where, "namespace"), (name, "VM")):
        # Without a namespace, that of the context counts.
        if not is_name(text) and (text or slash or what == "VM"):
            raise InputError(f"{quote(text)} is not a valid {what} name", "VM", "use NAMESPACE/NAME")
    return where, name


# What help says of a namespace that a command's source gives.
CONTEXT: Final = "[default: as kubectl; with --cluster-from default]"
_OF_VM: Final = click.option("-n", "--namespace", metavar="NAMESPACE", help=f"Namespace of the VM.  {CONTEXT}")
# ``[NAMESPACE/]VM`` and ``-n``, passed together as ``vm_name``, a `VmName`.
vm_argument: Final = _passed_as("vm_name", _vm_name, click.argument("vm", metavar="[NAMESPACE/]VM"), _OF_VM)
CLUSTER_FROM: Final = click.option(
    "--cluster-from", type=PATH, metavar="DIR", help="Read cluster objects from YAML files instead of a cluster."
)
SHOW_SECRETS: Final = click.option(
    "--show-secrets", is_flag=True, help="Print passwords, cloud-init data and other secrets."
)
_CRDS: Final = "CustomResourceDefinitions of KubeVirt to check objects against.  [default: those of the cluster]"
# What objects of KubeVirt are checked against, passed as ``crds`` and ``no_validate``.
VALIDATION: Final = _together(
    click.option("--crds", type=PATH, metavar="FILE", help=_CRDS),
    click.option("--no-validate", is_flag=True, help="Do not check objects of KubeVirt as the API server would."),
)


class Source(NamedTuple):
    """The cluster that a command reads: files of a directory, or a running one; without both, the one of kubectl."""

    cluster_from: Path | None
    kubeconfig: Kubeconfig | None

    def open(self) -> AbstractAsyncContextManager[Cluster]:
        """The source for a few reads; raises as `open_cluster`. Files are read by the settings without a file."""
        # Here, since every command imports this module: `--help` loads nothing that is slow, forecasts no policies.
        from webhook.cluster.selection import open_cluster
        from webhook.settings_file import default_settings

        return open_cluster(*self, default_settings() if self.cluster_from else None)


def source_option(default: str = "as kubectl") -> _Decorator:
    """``--cluster-from`` and the options of `kubeconfig_option`, passed together as ``source``, a `Source`."""
    return _passed_as("source", Source, CLUSTER_FROM, kubeconfig_option(default))


def output_option(*formats: str, passes_default: bool = True) -> _Decorator:
    """``-o FORMAT``, the default one first, passed as ``output``: without the option the default, or None."""
    default, text = formats[0] if passes_default else None, f"Output format.  [default: {formats[0]}]"
    return click.option("-o", "--output", type=click.Choice(formats), default=default, help=text)


class CommandGroup(click.Group):
    """A group whose ``--help`` cuts no sentence, and which knows the commands that it has not imported yet."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that the words name; for a mistyped one, those that it may mean."""
        try:
            return super().resolve_command(ctx, args)
        except click.NoSuchCommand as error:
            # click looks for them among those that are imported.
            raise click.NoSuchCommand(error.command_name, possibilities=self.list_commands(ctx), ctx=ctx) from None

    def summaries(self, ctx: click.Context) -> list[tuple[str, str]]:
        """The commands, each with the first sentence of its help."""
        commands = ((name, self.get_command(ctx, name)) for name in self.list_commands(ctx))
        texts = [(name, " ".join((each.help or "").partition("\n\n")[0].split())) for name, each in commands if each]
        return [(name, text.partition(". ")[0].rstrip(".") + ".") for name, text in texts]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The command table of ``--help``, whose sentences wrap."""
        with formatter.section("Commands"):
            formatter.write_dl(self.summaries(ctx))
