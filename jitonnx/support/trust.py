"""Whether a file that holds machine code can have been written by somebody else."""

from __future__ import annotations

import os
import stat


def distrust(path: str, status: os.stat_result) -> str | None:
    """Why code in an open file is not to be run; None if only this user and root can have put it there.

    path: the file; its folder counts too, as who can write that can exchange files. status: of the open file.
    """
    folder = os.path.dirname(os.path.realpath(path))
    found = os.stat(folder)
    # In a folder with the sticky bit (such as /tmp) files are exchanged by their owners alone.
    sticky = bool(found.st_mode & stat.S_ISVTX)
    for name, this, writable in ((path, status, _others_write(status)), (folder, found, _others_write(found))):
        if this.st_uid not in (os.geteuid(), 0):
            return f"{name} belongs to another user (number {this.st_uid})"
        if writable and not (sticky and this is found):
            return f"{name} can be written by other users (mode {stat.S_IMODE(this.st_mode):o}): chmod go-w {name}"
    return None


def _others_write(status: os.stat_result) -> bool:
    if status.st_mode & stat.S_IWOTH:
        return True
    return bool(status.st_mode & stat.S_IWGRP) and not _is_own_group(status)


def _is_own_group(status: os.stat_result) -> bool:
    """Whether the group is the owner's alone, as where every user has a group of their name and files are mode 664."""
    import grp
    import pwd

    try:
        owner, group = pwd.getpwuid(status.st_uid), grp.getgrgid(status.st_gid)
    except KeyError:
        return False
    return owner.pw_gid == group.gr_gid and group.gr_name == owner.pw_name and set(group.gr_mem) <= {owner.pw_name}
