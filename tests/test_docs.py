"""The pages: links lead somewhere, named files, commands, codes and metrics exist, outputs are what commands print."""

from __future__ import annotations

import configparser
import importlib.metadata
import itertools
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import click
import pytest
import yaml

from hack import outputs, picture
from tests import builders
from tests.cli.runner import run
from tests.owners import merge
from webhook import names
from webhook.cli.main import main as program
from webhook.findings import Finding
from webhook.policies.meanings import MEANINGS
from webhook.policies.registry import BY_NAME

ROOT = Path(__file__).parents[1]
PAGES = ["README.md", "CONTRIBUTING.md", "SECURITY.md", "THREAT_MODEL.md", "CHANGELOG.md"]
PAGES += sorted(file.relative_to(ROOT).as_posix() for file in (ROOT / "docs").rglob("*.md"))
each_page = pytest.mark.parametrize("page", PAGES)
# In an import path, a pattern or a file that a command of the page makes.
NOT_FILES = re.compile(r"[*…<>{}]|\.\.\.")
DIRECTORIES = ("webhook/", "certs/", "tests/", "docs/", "manifests/", "examples/", "hack/", "bench/")


@cache
def text_of(page: str) -> str:
    return (ROOT / page).read_text()


def without_blocks(page: str) -> str:
    """A page without its blocks of code."""
    return re.sub(r"^ *```.*?^ *```", "", text_of(page), flags=re.DOTALL | re.MULTILINE)


def slug(heading: str) -> str:
    """The anchor that GitHub gives to a heading."""
    words = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").strip().lower()
    return re.sub(r"[^\w\- ]", "", words).replace(" ", "-")


@cache
def anchors(page: str) -> frozenset[str]:
    return frozenset(slug(heading) for heading in re.findall(r"^#+ (.+)$", without_blocks(page), re.MULTILINE))


def broken(page: str, link: str) -> str:
    """Why a link leads nowhere; empty where it leads somewhere, or outside of the repository."""
    if re.match(r"[a-z]+:", link):
        return ""
    path, _, anchor = link.partition("#")
    target = (ROOT / page).parent / path if path else ROOT / page
    if not target.exists():
        return f"{page}: there is no file {link}"
    if anchor and anchor not in anchors(target.resolve().relative_to(ROOT).as_posix()):
        return f"{page}: there is no heading {link}"
    return ""


def commands(page: str) -> Iterator[list[str]]:
    """The commands of kubevirt-webhook that a page shows, in words."""
    for block in re.findall(r"^ *```(?:console|sh)?\n(.*?)^ *```", text_of(page), re.DOTALL | re.MULTILINE):
        joined = re.sub(r"\\\n\s*", " ", block)
        for command in re.findall(r"^ *\$ kubevirt-webhook (.+)$", joined, re.MULTILINE):
            yield re.sub(r"[\[\]]", " ", re.split(r"#| \| ", command)[0]).split()
    yield from (command.split() for command in re.findall(r"`kubevirt-webhook ([a-z][^`]*)`", text_of(page)))


def unknown(words: list[str]) -> str:
    """The parts of a command that do not exist: a subcommand or an option."""
    command: click.Command = program
    # With the settings of the program: click keeps the help option that the first context made.
    context = click.Context(program, **program.context_settings)
    for word in words:
        if isinstance(command, click.Group) and not word.startswith("-"):
            found = command.get_command(context, word)
            if found is None:
                return f"there is no command {word}"
            command = found
        elif word.startswith("-"):
            options = {
                each for option in command.get_params(context) for each in (*option.opts, *option.secondary_opts)
            }
            if word.partition("=")[0] not in options:
                return f"{command.name} has no option {word}"
    return ""


@cache
def sources() -> str:
    files = [*(ROOT / "webhook").rglob("*.py"), *(ROOT / "certs").rglob("*.py"), *(ROOT / "manifests").rglob("*.yaml")]
    return "\n".join(file.read_text() for file in sorted(files))


@each_page
def test_what_a_page_names_exists(page: str) -> None:
    """Links, files, commands, targets of make, metrics, labels and annotations."""
    links = re.findall(r"\]\(([^)\s]+)\)", without_blocks(page))
    assert {why for link in links if (why := broken(page, link))} == set()

    quoted = re.findall(r"`([\w./-]+)`", without_blocks(page))
    files = {name for name in quoted if name.startswith(DIRECTORIES) and not NOT_FILES.search(name)}
    assert {name for name in files if not (ROOT / name).exists()} == set()

    assert {why for words in commands(page) if (why := unknown(words))} == set()
    targets = set(re.findall(r"^([a-z0-9-]+):", text_of("Makefile"), re.MULTILINE))
    assert set(re.findall(r"(?:`|\$ |^)make ([a-z][a-z0-9-]*)", text_of(page), re.MULTILINE)) <= targets

    written = set(re.findall(r"kubevirt_webhook_([a-z_]+)", text_of(page)))
    # The client library adds these.
    bare = {name.removesuffix("_total").removesuffix("_bucket") for name in written}
    assert {name for name in bare if f"kubevirt_webhook_{name}" not in sources()} == set()

    named = set(re.findall(r"kubevirt-webhook\.github\.io/([a-z][a-z0-9-]+)(?![a-z0-9-]*/)", text_of(page)))
    ours = {value for value in vars(names).values() if isinstance(value, str) and value.startswith(f"{names.DOMAIN}/")}
    ours |= {names.policy_label(policy) for policy in BY_NAME}
    unknown_ones = {name for name in named if f"{names.DOMAIN}/{name}" not in ours}
    assert {name for name in unknown_ones if f"/{name}" not in sources()} == set()


@pytest.mark.parametrize(
    ("page", "mention"),
    [
        ("README.md", "[{0}](docs/{0}.md)"),
        ("docs/quick-start.md", "[{0}]({0}.md)"),
        ("CONTRIBUTING.md", "/{0}/"),
    ],
)
def test_lists_of_policies_have_all_of_them(page: str, mention: str) -> None:
    missing = [policy for policy in BY_NAME if mention.format(policy) not in text_of(page)]
    assert missing == [], f"add them to the list of policies in {page}"


def test_what_does_not_exist_is_found() -> None:
    assert broken("README.md", "docs/nothing.md")
    assert broken("README.md", "docs/scheduling.md#nothing")
    assert not broken("docs/faq.md", "../README.md")
    assert unknown(["explain", "nothing", "shop/web"])
    assert unknown(["doctor", "--loud"])
    assert not unknown(["explain", "migration", "shop/web", "--to", "zone=b"])


def test_what_doctor_finds_leads_to_a_heading_of_its_page() -> None:
    """Of each check: what its decorator names, or a finding that is made without one."""
    found: set[str] = set()
    for file in (ROOT / "webhook").rglob("*.py"):
        text = file.read_text()
        for name in re.findall(r"(?:@check|(?<!class )(?:Finding|Measurement))\(([^,()]+)[,)]", text):
            constant = re.search(rf'^{re.escape(name)}: Final = (".+")$', text, re.MULTILINE)
            found.add(constant[1] if constant else name)
    # Without a name yet: the decorator sets it.
    found.remove('""')

    assert len(found) > 25
    assert {name for name in found if not re.fullmatch(r'"[a-z-]+"', name)} == set()
    for name in found:
        address = Finding(name.strip('"'), "code", "subject", "failure", "found").see
        page, _, anchor = address.removeprefix(f"{names.SITE}/").partition("#")
        assert not broken("README.md", f"docs/{page}.md#{anchor}")


def test_addresses_in_outputs_and_alerts_are_below_the_alias_that_a_release_publishes() -> None:
    # At the site's root mike has one page, which leads to the alias.
    (alias,) = re.findall(r"^\$ mike set-default .*?([\w.]+)$", text_of("docs/releasing.md"), re.MULTILINE)
    assert f"{names.SITE}/" == f"https://{names.DOMAIN}/{alias}/"
    assert re.search(rf"^\$ mike deploy .*--update-aliases \S+ {alias}$", text_of("docs/releasing.md"), re.MULTILINE)
    shipped = [file for directory in ("manifests", "charts") for file in (ROOT / directory).rglob("*.yaml")]
    found = [link for file in shipped for link in re.findall(rf"https://{names.DOMAIN}/[\w./#-]+", file.read_text())]
    assert len(found) > 15
    assert {link for link in found if not link.startswith(f"{names.SITE}/")} == set()


def test_every_reason_code_is_explained_to_admins_and_those_of_the_page_for_owners_exist() -> None:
    explained = {code for page in PAGES if page != "CHANGELOG.md" for code in re.findall(r"`([a-z-]+)`", text_of(page))}
    assert MEANINGS.keys() <= explained
    named = re.findall(r"^\| `([a-z-]+)` \||\(`([a-z-]+)`\)", text_of("docs/vm-owners.md"), re.MULTILINE)
    assert {one or other for one, other in named} <= MEANINGS.keys()


@pytest.mark.parametrize("name", picture.PICTURES)
def test_pictures_of_a_terminal_show_what_commands_print(name: str) -> None:
    drawn = (ROOT / "docs" / "images" / f"{name}.svg").read_text()
    assert drawn == picture.draw(name), "run make docs"
    assert "@font-face" not in drawn


def test_the_architecture_page_has_the_layers_that_import_linter_holds() -> None:
    config = configparser.ConfigParser()
    config.read(ROOT / ".importlinter")
    lines = config["importlinter:contract:layers"]["layers"].split()
    layers = " ".join(lines).replace("webhook.", "").replace(" | ", "|").split()
    page = " ".join(text_of("docs/architecture.md").split())
    assert " > ".join(layer.replace("|", " | ") for layer in layers) in page
    packages = {path.parent.name for path in (ROOT / "webhook").glob("*/__init__.py")}
    assert packages <= {name for layer in layers for name in layer.split("|")}


def test_the_architecture_page_names_modules_that_exist() -> None:
    page = text_of("docs/architecture.md")
    rows = re.findall(r"^\| `((?:webhook|certs)[\w/]*)` \| (.+) \|$", page, re.MULTILINE)
    names = [f"{package}/{name}" for package, cell in rows for name in re.findall(r"`([\w/]+(?:\.py|/))`", cell)]
    table = text_of("CONTRIBUTING.md").partition("## Where would you look?")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (?!symptom|-)(.+?) \| (.+) \|$", table, re.MULTILINE)
    modules = [re.findall(r"`((?:webhook|certs)/[\w/]+\.py)`", cell) for _, cell in rows]
    assert len({symptom for symptom, _ in rows}) >= 20
    assert all(modules)
    assert [name for name in itertools.chain(names, *modules) if not (ROOT / name).exists()] == []


def test_pages_show_what_commands_print() -> None:
    assert outputs.outdated(lambda *words: run(*words).output) == [], "run make docs"


# The YAML of the page for owners, in its order: the namespace, and the code that the decision then has.
OPT_OUTS = [("shop", "owner-opted-out"), ("shop", "owner-opted-out-of-spread"), ("apps", "owner-opted-out")]
OPT_IN = r"^\$ kubectl (?:annotate|label) namespace shop (.+)$"
SPREADING = """
schedulers: {kubevirt: {healthCheck: lease kubevirt-scheduler/kubevirt-scheduler}}
scheduling: {spread: hostname, spreadVirtualMachines: true}
"""


def test_opt_outs_of_the_page_for_owners_work(tmp_path: Path) -> None:
    fragments = re.findall(r"```yaml\n(.*?)```", text_of("docs/vm-owners.md"), re.DOTALL)
    (tmp_path / "settings.yaml").write_text(SPREADING)
    assert len(fragments) == len(OPT_OUTS)
    for fragment, (namespace, code) in zip(fragments, OPT_OUTS, strict=True):
        vm = builders.vm() | {"metadata": {"name": "a", "namespace": namespace}}
        (tmp_path / "vm.yaml").write_text(yaml.safe_dump(merge(vm, yaml.safe_load(fragment))))
        options = ("--cluster-from", ROOT / "examples" / "cluster", "--config", tmp_path / "settings.yaml")

        assert f"[{code}]" in run("review", tmp_path / "vm.yaml", *options).output


def test_the_quick_start_shows_what_happens(tmp_path: Path) -> None:
    page = text_of("docs/quick-start.md")
    given, _, expected = page.partition("$ kubectl create --dry-run=server -f vm.yaml -o jsonpath=")
    words = [line.split() for line in re.findall(OPT_IN, given, re.MULTILINE)]
    (annotation, label) = (each[0].split("=") for each in words)
    namespace = {"name": "shop", "annotations": dict([annotation]), "labels": dict([label])}
    manifest = yaml.safe_load(re.findall(r"```yaml\n(# vm.yaml.*?)```", given, re.DOTALL)[0])
    missing = merge(manifest, {"spec": {"instancetype": {"name": "u1.enormous"}}})
    size = expected.splitlines()[1]
    cluster = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": namespace},
        {
            "apiVersion": "instancetype.kubevirt.io/v1beta1",
            "kind": "VirtualMachineClusterInstancetype",
            "metadata": {"name": size},
            "spec": {"cpu": {"guest": 1}, "memory": {"guest": "2Gi"}},
        },
    ]
    (tmp_path / "cluster").mkdir()
    (tmp_path / "cluster" / "cluster.yaml").write_text(yaml.safe_dump_all(cluster))
    (tmp_path / "vms.yaml").write_text(yaml.safe_dump_all([manifest, missing]))
    done = run("review", tmp_path / "vms.yaml", "--cluster-from", tmp_path / "cluster", "-o", "json")

    first, second = json.loads(done.stdout)
    assert first["object"]["spec"]["instancetype"]["name"] == size == "u1.small"
    assert second["decision"] == "allowed"
    assert [each for each in second["warnings"] if each.endswith("[instancetype-missing]")]
    assert "`[instancetype-missing]`" in page
    assert "$ kubevirt-webhook explain reason instancetype-missing\n" in page


def test_build_arguments_on_the_pages_are_those_of_the_dockerfile() -> None:
    """Or of Docker, which knows those of proxies without a line in the Dockerfile."""
    known = {*re.findall(r"^ARG (\w+)", text_of("Dockerfile"), re.MULTILINE), "HTTPS_PROXY", "NO_PROXY"}
    named = {name for page in PAGES for name in re.findall(r"--build-arg (\w+)=", text_of(page))}
    assert "PIP_INDEX_URL" in named
    assert named - known == set()


def test_the_patch_for_kubernetes_asyncio_applies_to_it(tmp_path: Path) -> None:
    library = importlib.metadata.distribution("kubernetes_asyncio")
    page, patch = ROOT / "docs" / "upstream.md", ROOT / "docs" / "kubernetes-asyncio.patch"
    (version,) = re.findall(r"^## kubernetes-asyncio (\S+)$", page.read_text(), re.MULTILINE)
    if not library.version.startswith(f"{version}."):
        pytest.skip(f"this is {library.version}, and the page is about {version}")
    for name in re.findall(r"^--- a/(\S+)$", patch.read_text(), re.MULTILINE):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(str(library.locate_file(name)), tmp_path / name)
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    subprocess.run(["git", "apply", patch], cwd=tmp_path, check=True)
    for file in tmp_path.rglob("*.py"):
        compile(file.read_text(), file, "exec")
