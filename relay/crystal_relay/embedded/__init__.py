"""A relay without a server: the processes of one machine share a directory, and one of them serves the others.

    <directory>/lock, objects.db, files/   a local store
    <directory>/relay.sock                 where the process that holds the lock serves
    <directory>/enroll-token               makes vaults here; `crystal-relay serve` over the same directory does not accept it

It is the relay itself, with its routes, its tokens and its checks, over HTTP on a Unix socket. Whoever finds nobody there takes
the lock and serves, until it closes; then the next request of another takes over. So a command works alone, and beside a
background service, and nothing has to be started or stopped.
"""

SOCKET_NAME = "relay.sock"
