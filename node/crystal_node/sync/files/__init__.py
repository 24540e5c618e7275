"""The memory home's files on this device: what `crystal_mirror.files` needs of a disk, and what people need of it.

folders        folders opened component by component, never through a link
scan           every file of the tree, in order, by its stamps
parts          files cut by content, read and checked
incoming_file  a file assembled beside its place, then moved into it
artefacts      files that the Core makes from the memory: names and seals
trash          removed files, for 30 days
marker         how a home is recognised
database       what is known of each file, in `state/files.db`
disk           all of these as the port
rules          what is Crystal's own, excluded or allowed here
rounds         a round on a real device
text_search    files that hold a text, for a forget
status         for `crystal files status`
"""
