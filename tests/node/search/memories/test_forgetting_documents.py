"""`crystal forget` of a text that stands in a document: gone everywhere, and reading the source again does not bring it."""

from tests.support.machine import Vault

SHELVES = " ".join(f"Shelf {number} holds the paint of door {number * 7}." for number in range(50))
SECRET = "The garage code is quokkazanzibar."
GARDEN = " ".join(f"Tree {number} was planted in {1950 + number} by the gate." for number in range(50))


def test_a_text_of_a_document_is_forgotten_and_stays_out_of_it(vault: Vault) -> None:
    core, node = vault.core, vault.add()
    folder = core.root / "house"
    folder.mkdir()
    note = folder / "house.md"
    note.write_text(f"# Garage\n\n{SECRET} {SHELVES}\n\n# Garden\n\n{GARDEN}\n")
    core.call("sources", "add", "--later", str(folder), "--name", "house")
    core.call("sources", "sync", "house")
    vault.settle()
    results = node.call("search", "--json", "quokkazanzibar").json["results"]
    hits = [hit for hit in results if "quokkazanzibar" in hit["text"]]
    assert {hit["kind"] for hit in hits} == {"document"}
    told = node.call("forget", "--json", *(hit["id"] for hit in hits)).json
    assert told["documents"] == [{"source": "house", "path": "house.md"}]
    vault.settle()
    note.write_text(note.read_text() + "\n# Cellar\n\nThe cellar light is switched from the kitchen.\n")
    core.call("sources", "sync", "house")
    vault.settle()
    for machine in (core, node):
        assert not [text for text in machine.found("quokkazanzibar") if "quokkazanzibar" in text]
        assert [text for text in machine.found("cellar light kitchen") if "cellar" in text]
        assert [text for text in machine.found("tree planted gate") if "planted" in text]
