"""File types by name: what is read, as which kind, and what is never read whatever ignore files say.

Secrets (``base.secret_files``), generated files and binary formats are left out by name. Unknown names are read as plain text
if the content is text.
"""

import re
from enum import StrEnum

from crystal_core.cutting import PassageKind
from crystal_node.base.secret_files import is_secret_folder, is_secret_name

TEXT_BYTES_MAX = 2 * 1024 * 1024
"""One file of text."""
DOCUMENT_BYTES_MAX = 64 * 1024 * 1024
"""One PDF: most of it is pictures. HTML has the limit of text times four."""
HTML_BYTES_MAX = 4 * TEXT_BYTES_MAX


class Skipped(StrEnum):
    """Why a file or folder is not read. ``told``: reasons that a person may want to know."""

    IGNORED = "ignored"
    """By an ignore file, or a pattern of the source."""
    MACHINERY = "machinery"
    """Folders of tools, lock files, what is generated."""
    SECRET = "secret"  # noqa: S105
    """By its name, or a folder that is another home of Crystal."""
    SECRET_CONTENT = "secret by what it holds"  # noqa: S105
    BINARY = "binary"
    LINK = "link"
    SPECIAL = "special file"
    TOO_LARGE = "too large"
    EMPTY = "empty"
    ENCODING = "unknown encoding"
    MINIFIED = "minified"
    UNREADABLE = "unreadable"
    ODD_NAME = "odd name"
    NO_EXTRACTOR = "needs the extra documents"
    FAILED = "could not be converted"
    TOO_MANY = "over the limit of files"
    OTHER_DISK = "another file system"

    @property
    def told(self) -> bool:
        return self in _TOLD


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_TOLD = frozenset(
    {
        Skipped.SECRET_CONTENT,
        Skipped.TOO_LARGE,
        Skipped.ENCODING,
        Skipped.UNREADABLE,
        Skipped.ODD_NAME,
        Skipped.NO_EXTRACTOR,
        Skipped.FAILED,
        Skipped.TOO_MANY,
        Skipped.OTHER_DISK,
    }
)

_MACHINERY_FOLDERS = _words(
    """
    .git .hg .svn .bzr .jj _darcs CVS node_modules bower_components jspm_packages __pycache__ .venv venv
    virtualenv .virtualenv .tox .nox .eggs .mypy_cache .pytest_cache .ruff_cache .hypothesis
    .ipynb_checkpoints .cache .gradle .terraform .next .nuxt .svelte-kit .parcel-cache .turbo .yarn
    .pnpm-store .bundle .dart_tool .stack-work dist-newstyle .idea .vs __MACOSX .Trash .Trashes
    .Spotlight-V100 .fseventsd $RECYCLE.BIN .crystal-trash
    """
)
_MACHINERY_FILES = _words(
    """
    package-lock.json npm-shrinkwrap.json yarn.lock pnpm-lock.yaml bun.lock bun.lockb poetry.lock uv.lock
    pdm.lock pipfile.lock cargo.lock gemfile.lock composer.lock go.sum flake.lock mix.lock pubspec.lock
    podfile.lock packages.lock.json .ds_store thumbs.db desktop.ini .gitignore .gitattributes .gitmodules
    .ignore .crystalignore .crystal-root .coverage tags
    """
)
_BINARY_ENDINGS = _words(
    """
    a apk app avi avif bin bmp br bz2 cab cache class db deb dll dmg doc docx dylib ear eot exe fig flac flv
    gguf gif gz heic ico idx img iso jar jpeg jpg lz4 lzma m4a m4v mkv mov mp3 mp4 mpeg mpg msi npy npz o obj
    ogg onnx otf pack parquet pdb pickle pkl png ppt pptx psd pt pth pyc pyd pyo rar rpm safetensors so sqlite
    sqlite3 swf tar tgz tif tiff ttf wasm wav webm webp whl wmv woff woff2 xls xlsx xz zip zst 7z odt ods odp
    epub mobi sketch blend fbx glb h5 hdf5 tflite lib sys bak swp swo db-wal db-shm sqlite-wal sqlite-shm
    """
)
_GENERATED = re.compile(
    r".+\.(?:min\.(?:js|css)|map|bundle\.js|chunk\.js|pb\.go|snap|lock)|.+(?:~|\.orig|\.rej|\.tmp|\.part|\.log)"
)
_MARKDOWN_ENDINGS = _words(
    """
    md markdown mdown mkd mdx qmd rmd
    """
)
_TEXT_ENDINGS = _words(
    """
    txt text rst adoc asciidoc org tex bib csv tsv log srt vtt eml textile wiki pod
    """
)
_HTML_ENDINGS = _words(
    """
    html htm xhtml
    """
)
_CODE_ENDINGS = _words(
    """
    py pyi pyx js jsx mjs cjs ts tsx mts cts java kt kts scala groovy clj cljs cljc go rs c h cc cpp cxx hh
    hpp hxx m mm cs fs fsx vb swift rb rake php pl pm t lua r jl hs lhs ml mli erl hrl ex exs elm dart nim zig
    v d pas ada adb ads f f90 f95 for cob asm s sh bash zsh fish ps1 psm1 bat cmd awk sed tcl sql graphql gql
    proto thrift avsc sol vy move json jsonc json5 jsonl ndjson yaml yml toml ini cfg conf properties xml xsd
    xsl svg plist css scss sass less styl vue svelte astro hcl tf nix bzl bazel cmake mk gradle dockerfile vim
    el lisp scm rkt ipynb
    """
)
_CODE_NAMES = _words(
    """
    makefile gnumakefile dockerfile containerfile vagrantfile rakefile gemfile jenkinsfile justfile procfile
    brewfile build workspace cmakelists.txt snakefile
    """
)


def skipped_folder(name: str) -> Skipped | None:
    """Why a folder of that name is never read."""
    if is_secret_folder(name):
        return Skipped.SECRET
    if name in _MACHINERY_FOLDERS or name.endswith(
        (".egg-info", ".dist-info", ".xcassets", ".photoslibrary")
    ):
        return Skipped.MACHINERY
    return None


def skipped_file(name: str) -> Skipped | None:
    """Why a file of that name is never opened."""
    lowered = name.lower()
    if is_secret_name(name):
        return Skipped.SECRET
    if lowered in _MACHINERY_FILES or _GENERATED.fullmatch(lowered):
        return Skipped.MACHINERY
    if _ending(lowered) in _BINARY_ENDINGS:
        return Skipped.BINARY
    return None


def kind_of(path: str) -> PassageKind:
    """The kind as which a file is read."""
    name = path.rpartition("/")[2].lower()
    ending = _ending(name)
    if ending in _MARKDOWN_ENDINGS:
        return PassageKind.MARKDOWN
    if ending == "pdf":
        return PassageKind.PDF
    if ending in _HTML_ENDINGS:
        return PassageKind.HTML
    if name in _CODE_NAMES or (ending in _CODE_ENDINGS and ending not in _TEXT_ENDINGS):
        return PassageKind.CODE
    return PassageKind.TEXT


def is_python(path: str) -> bool:
    return path.lower().endswith((".py", ".pyi"))


def bytes_max(kind: PassageKind) -> int:
    if kind is PassageKind.PDF:
        return DOCUMENT_BYTES_MAX
    return HTML_BYTES_MAX if kind is PassageKind.HTML else TEXT_BYTES_MAX


def _ending(name: str) -> str:
    return name.rpartition(".")[2] if "." in name[1:] else ""
