"""The memory home's files on this device: what `crystal_mirror.files.round` needs of a disk, and what people need of it.

rules     which paths belong to the tree, and what a person has excluded here
folders   folders opened component by component, never through a link
scan      everything that stands there, in order, by its stamps
parts     files cut by content, read and checked
incoming  a file put together beside its place, and then put in it
trash     what was removed, for 30 days
marker    how a home is recognised
book      what is known of each file, in `state/files.db`
disk      all of these as the port
rounds    a round on a real device
alongside, watching   when: in `crystal sync`, and while it watches
standing  how they stand, for people
"""
