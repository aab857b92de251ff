"""Accounting for a real Slurm: a MariaDB server and slurmdbd of its own, and accounts with shares."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping

from parity.daemons import Slurm, program, wait_for
from volery.core.errors import InputError

DATABASE_PACKAGE = "mariadb-server"
PORTS = 2
"""Those of slurmdbd and of the database."""
DATABASE_CONF = """\
[mariadbd]
user=root
datadir={folder}/database
socket={folder}/database.sock
pid-file={folder}/database.pid
log-error={folder}/database.log
port={port}
bind-address=127.0.0.1
innodb-buffer-pool-size=64M
innodb-lock-wait-timeout=900
"""
CONF = """\
AuthType=auth/none
DbdHost=localhost
DbdPort={port}
SlurmUser=root
LogFile={folder}/slurmdbd.log
PidFile={folder}/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={database_port}
StorageUser=slurm
StoragePass=slurm
"""
USER_SQL = "CREATE USER slurm@localhost IDENTIFIED BY 'slurm';\nGRANT ALL ON *.* TO slurm@localhost;\n"


def start(slurm: Slurm, port: int, shares: Mapping[str, int]) -> None:
    """Start MariaDB and slurmdbd beside a cluster that is about to start, with one account per share.

    Args:
        slurm: The cluster.
        port: Port of slurmdbd; the next is the database's.
        shares: Shares of each account.

    Raises:
        InputError: if one of them does not come up.
    """
    folder = slurm.folder
    conf = folder / "database.conf"
    conf.write_text(DATABASE_CONF.format(folder=folder, port=port + 1))
    command = [program("mariadb-install-db", DATABASE_PACKAGE), f"--defaults-file={conf}", "--skip-test-db"]
    created = subprocess.run(
        [*command, "--auth-root-authentication-method=normal"], capture_output=True, text=True, check=False
    )
    if created.returncode:
        raise InputError("mariadb-install-db", f"no database can be made: {created.stderr.strip()[-300:]}")

    users = folder / "users.sql"
    users.write_text(USER_SQL)
    server = slurm.daemon("mariadbd", f"--defaults-file={conf}", f"--init-file={users}", words="database")
    log = folder / "database.log"
    wait_for(lambda: log.exists() and "ready for connections" in log.read_text(), "mariadbd", log, [server])

    settings = folder / "slurmdbd.conf"
    settings.write_text(CONF.format(folder=folder, port=port, database_port=port + 1))
    settings.chmod(0o600)
    slurmdbd = slurm.daemon("slurmdbd", "-D")
    log = folder / "slurmdbd.log"
    wait_for(lambda: slurm.answers("sacctmgr", "-n", "show", "cluster"), "slurmdbd", log, [slurmdbd])

    slurm.output("sacctmgr", "-i", "add", "cluster", "parity")
    for account, share in shares.items():
        slurm.output("sacctmgr", "-i", "add", "account", account, "cluster=parity", f"fairshare={share}")
        slurm.output("sacctmgr", "-i", "add", "user", "root", f"account={account}", "cluster=parity")


def export(slurm: Slurm) -> None:
    """Write what sacct and sshare say of a run into the folder of the cluster."""
    (slurm.folder / "sacct.txt").write_text(slurm.output("sacct", "-P", "-a", "-X", "-S", "now-1hour", "-o", "all"))
    (slurm.folder / "sshare.txt").write_text(slurm.output("sshare", "-a", "-l", "-P"))
