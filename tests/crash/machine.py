"""machine.py: puts a directory into the state after a crash of the machine, using the records of
preload/disk-faults.c.

A file loses all or a part of the data that was written after its last successful sync.

Each change of a directory (a file was created, renamed or deleted) may be lost independently, unless a sync of one
of its directories began after it and succeeded. A rename is lost as a whole. A change of an entry survives only
together with the earlier changes of that entry. POSIX allows this; journaling file systems lose changes only in the
reverse order, which is one of the cases."""
import os, shutil


class Change:
    def __init__(self, fields):
        self.entries = [tuple(fields[i:i + 2]) + (int(fields[i + 2]), int(fields[i + 3]))
                        for i in range(0, len(fields), 4)]  # directory, name, inode before and after
        self.kept = False

    def names(self):
        return {entry[:2] for entry in self.entries}

    def directories(self):
        return {entry[0] for entry in self.entries}


class Machine:
    """`directory` contains all files that the server writes. `records` is the file for DISK_SYNCED."""

    def __init__(self, directory, rng):
        self.directory, self.rng = os.path.realpath(directory), rng
        self.records = os.path.join(self.directory, "synced")
        os.mkdir(self.records)
        self.on_disk = {}  # lengths, by inode, of the files that existed when the machine started

    def crash(self):
        """Returns the number of changes of directories that were undone."""
        lost = self.lose_changes(self.read_changes())
        for top, _, names in os.walk(self.directory):
            if top != self.directory and top != self.records:
                for name in names:
                    self.lose_end(os.path.join(top, name))
        for name in os.listdir(self.directory):
            if name.endswith(".rdb") or name.startswith("temp-"):
                self.lose_end(os.path.join(self.directory, name))
        shutil.rmtree(self.records)
        os.mkdir(self.records)
        files = (os.stat(os.path.join(top, name)) for top, _, names in os.walk(self.directory) for name in names)
        self.on_disk = {status.st_ino: status.st_size for status in files}
        return lost

    def read_changes(self):
        changes, begun = [], {}
        path = os.path.join(self.records, "names")
        if not os.path.exists(path):
            return changes
        with open(path) as file:
            for line in file:
                kind, *fields = line.rstrip("\n").split("\t")
                if kind == "change":
                    changes.append(Change(fields))
                elif kind == "begin":
                    begun[fields[0]] = (fields[1], len(changes))
                else:
                    directory, count = begun[fields[0]]
                    for change in changes[:count]:
                        change.kept |= directory in change.directories()
        return changes

    def lose_changes(self, changes):
        chance = self.rng.choice([0, 0, 0.5, 0.9])
        ordered, survive = self.rng.random() < 0.3, self.rng.randrange(len(changes) + 1)
        for number, change in enumerate(changes):
            change.kept |= number < survive if ordered else self.rng.random() < chance
        needed = set()
        for change in reversed(changes):
            change.kept |= bool(change.names() & needed)
            if change.kept:
                needed |= change.names()
        lost = [change for change in reversed(changes) if not change.kept]
        for change in lost:
            for directory, name, before, _ in change.entries:
                self.put_back(os.path.join(directory, name), before)
        return len(lost)

    def put_back(self, path, inode):
        if os.path.isdir(path):
            shutil.rmtree(path)
        elif os.path.lexists(path):
            os.unlink(path)
        if inode and os.path.isdir(os.path.dirname(path)):
            os.link(os.path.join(self.records, "kept-%d" % inode), path)

    def lose_end(self, path):
        status = os.stat(path)
        record = os.path.join(self.records, "%d-%d" % (status.st_dev, status.st_ino))
        synced = self.on_disk.get(status.st_ino, 0)
        if os.path.exists(record) and os.path.getsize(record):
            with open(record) as file:
                synced = int(file.read())
        if synced < status.st_size:
            os.truncate(path, synced if self.rng.random() < 0.5 else self.rng.randrange(synced, status.st_size + 1))
