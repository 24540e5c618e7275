"""A memory as plain files: export, and import of an export.

| module | holds |
|---|---|
| `export_format` | the lines of an export, as types |
| `export`, `importer` | writing an export; reading one into a vault |
| `record_import` | records into the memory, wherever they were read: in batches, each once |

Imported data is not trusted: it is recorded again by this device. A damaged export is refused before anything is imported.
"""
