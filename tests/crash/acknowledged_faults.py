"""acknowledged_faults.py: what fails in a group of tests/crash/acknowledged. Each fault gets the group and random
numbers.

The last ones are scenarios: faults in an order that random ones rarely have."""
import os
import threading
import time

from acknowledged_group import SERVERS, freeze_in_turn
from servers import until


def hold(rng):
    time.sleep(rng.choice([0, 0.1, 0.4, 1.2, 2.5]))


def successor(group, rng):
    return group.best_replica() if group.genuine else rng.choice(
        [number for number in group.others() if group.servers[number].alive()])


def kill_primary(group, rng):
    primary = group.primary
    group.kill(primary)
    group.promote(successor(group, rng))
    group.start(primary)


def freeze_primary(group, rng):
    primary = group.primary
    group.freeze(primary)
    hold(rng)
    group.promote(successor(group, rng))
    if rng.random() < 0.7:
        group.follow()
    hold(rng)
    group.thaw(primary)


def cut_primary(group, rng):
    if not group.links:
        return freeze_primary(group, rng)
    group.separate(group.primary, rng.choice(["stalled", "refused", "deaf", "mute"]))
    hold(rng)
    group.promote(successor(group, rng))
    if rng.random() < 0.7:
        group.follow()
    hold(rng)
    return group.join_again(rng.random() < 0.5)


def cut_replica(group, rng):
    if not group.links:
        return freeze_replica(group, rng)
    group.separate(rng.choice(group.others()), rng.choice(["stalled", "refused", "deaf", "mute"]))
    hold(rng)
    hold(rng)
    return group.join_again(rng.random() < 0.5)


def promote(group, rng):
    group.promote(successor(group, rng))


def promote_both(group, rng):
    """Two candidates at the same time."""
    threads = [threading.Thread(target=group.try_call, args=(number, "REPLICAOF", "NO", "ONE"))
               for number in group.others()]
    group.note(f"servers {group.others()} are promoted at the same time")
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    hold(rng)


def fenced_twice(group, rng):
    """The old primary is told twice to be the primary."""
    primary = group.primary
    group.promote(successor(group, rng))
    for _ in range(2):
        group.note(f"server {primary} is promoted again")
        group.try_call(primary, "REPLICAOF", "NO", "ONE")
        hold(rng)


def failover(group, rng):
    chosen = successor(group, rng)
    words = ["FAILOVER", "TO", "127.0.0.1", group.link_port(chosen)]
    if rng.random() < 0.3:
        words += ["FORCE"]
    words += ["TIMEOUT", rng.choice([300, 5000])]
    group.note(f"{words} at server {group.primary}")
    group.try_call(group.primary, *words)
    if rng.random() < 0.5:
        until(lambda: group.leads(chosen), 6)
    else:
        hold(rng)


def failover_killed(group, rng):
    """One of the two servers of a FAILOVER is killed meanwhile."""
    chosen, primary = successor(group, rng), group.primary
    group.try_call(primary, "FAILOVER", "TO", "127.0.0.1", group.link_port(chosen), "TIMEOUT", 3000)
    time.sleep(rng.uniform(0, 1.5))
    victim = rng.choice([chosen, primary])
    group.note(f"FAILOVER from {primary} to {chosen}")
    group.kill(victim)
    hold(rng)
    group.start(victim)


def restart_primary(group, rng):
    primary = group.primary
    if rng.random() < 0.3:
        group.note(f"server {primary} is shut down")
        group.servers[primary].stop()
    else:
        group.kill(primary)
    if rng.random() < 0.3:
        group.note("its data are removed")
        group.lose_data(primary)
    hold(rng)
    group.start(primary)


def kill_replica(group, rng):
    victim = rng.choice(group.others())
    group.kill(victim)
    hold(rng)
    group.start(victim)
    if rng.random() < 0.5:
        group.follow()


def freeze_replica(group, rng):
    victim = rng.choice(group.others())
    group.freeze(victim)
    hold(rng)
    hold(rng)
    group.thaw(victim)


def old_replica(group, rng):
    """A replica that has missed writes is promoted after the primary is gone."""
    primary = group.primary
    old = rng.choice(group.others())
    group.freeze(old)
    time.sleep(rng.uniform(0.3, 2))
    group.kill(primary)
    group.thaw(old)
    group.promote(group.best_replica() if group.genuine else old)
    group.start(primary)


def new_replica(group, rng):
    """A replica is replaced by a new server, which may be promoted before it has its copy."""
    victim = rng.choice(group.others())
    group.kill(victim)
    group.wipe(victim)
    group.start(victim)
    group.follow()
    if rng.random() < 0.5:
        time.sleep(rng.uniform(0, 0.5))
        group.note(f"server {victim} is promoted")
        group.try_call(victim, "REPLICAOF", "NO", "ONE")
        hold(rng)


def moved_directory(group, rng):
    """CONFIG SET dir must not move what a server has promised."""
    primary = group.primary
    for number in range(SERVERS):
        place = os.path.join(group.servers[number].dir, "moved")
        os.makedirs(place, exist_ok=True)
        group.try_call(number, "CONFIG", "SET", "dir", place)
    group.promote(successor(group, rng))
    group.kill(primary)
    hold(rng)
    group.start(primary)


def two_faults(group, rng):
    """A replica is killed while the primary is frozen or cut off, and comes back."""
    primary, victim = group.primary, rng.choice(group.others())
    if group.links and rng.random() < 0.5:
        group.separate(primary, rng.choice(["stalled", "deaf", "mute"]))
    else:
        group.freeze(primary)
    hold(rng)
    group.kill(victim)
    other = next(number for number in group.others() if number != victim)
    group.promote(other, 3)
    group.start(victim)
    group.follow()
    until(lambda: group.leads(other), 3)
    if group.links:
        group.join_again(rng.random() < 0.5)
    group.thaw(primary)


# --- Scenarios

def late_acknowledgement(group, rng):
    """The replicas execute writes of a primary that is frozen. It finds their acknowledgements when it is replaced."""
    primary, others = group.primary, group.others()
    for number in others:
        group.freeze(number)
    time.sleep(rng.uniform(0.05, 0.3))
    group.freeze(primary)
    time.sleep(rng.choice([0, 0.1, 0.2]))  # clients' requests may come before the acknowledgements
    for number in others:
        group.thaw(number)
    time.sleep(rng.uniform(0, 0.4))
    group.replace(rng.choice(others), primary)
    time.sleep(rng.uniform(0.3, 2))
    group.thaw(primary)


def delayed_acknowledgements(group, rng):
    """What the replicas send to the primary arrives seconds later, and one of them is promoted meanwhile."""
    if not group.links:
        return late_acknowledgement(group, rng)
    primary, others = group.primary, group.others()
    delay = rng.choice([0.3, 0.8, 1.5, 3])
    group.note(f"what servers {others} send to server {primary} is delayed by {delay} s")
    group.links[primary].delay(others, delay, 0)
    hold(rng)
    if rng.random() < 0.3:
        failover(group, rng)
    elif rng.random() < 0.8:
        group.replace(rng.choice(others), primary)
    time.sleep(rng.uniform(0, 2 * delay))
    return group.join_again(rng.random() < 0.3)


def lost_stream(group, rng):
    """What the primary sends to its replicas is lost with it."""
    if not group.links:
        return kill_primary(group, rng)
    primary, others = group.primary, group.others()
    group.note(f"what server {primary} sends to its replicas waits")
    group.links[primary].stall(others, True)
    time.sleep(rng.choice([0.1, 0.4, 0.8]))
    stays = rng.random() < 0.3
    if stays:
        group.freeze(primary)
    else:
        group.kill(primary)
    group.join_again(True)
    group.replace(rng.choice(others), primary)
    hold(rng)
    if stays:
        return group.thaw(primary)
    return group.start(primary)


def deaf_primary(group, rng):
    """One direction of the links of a primary works. It is replaced, and does not learn of it for some time."""
    if not group.links:
        return freeze_primary(group, rng)
    primary, others = group.primary, group.others()
    group.separate(primary, rng.choice(["stalled", "deaf", "mute"]))
    time.sleep(rng.choice([0.1, 0.5]))
    group.replace(rng.choice(others), primary)
    time.sleep(rng.uniform(0.5, 3))
    return group.join_again(rng.random() < 0.3)


def promote_in_vain(group, rng):
    """A replica is promoted where nobody answers, and is told to follow the primary again."""
    chosen = rng.choice(group.others())
    if group.links:
        group.separate(chosen, rng.choice(["stalled", "refused"]))
    else:
        for number in {0, 1, 2} - {chosen}:
            group.freeze(number)
    group.note(f"server {chosen} is promoted in vain")
    group.try_call(chosen, "REPLICAOF", "NO", "ONE")
    hold(rng)
    group.try_call(chosen, "REPLICAOF", "127.0.0.1", group.link_port(group.primary))
    time.sleep(rng.choice([0, 0.5]))
    if group.links:
        return group.join_again(rng.random() < 0.7)
    for number in {0, 1, 2} - {chosen}:
        group.thaw(number)
    return None


def freeze_all(group, rng):
    freeze_in_turn(group, list(range(SERVERS)), rng)


def freeze_briefly(group, rng):
    """Around the length of the lease."""
    for _ in range(8):
        victims = rng.sample(range(SERVERS), rng.choice([1, 1, 2]))
        for number in victims:
            group.freeze(number)
        time.sleep(rng.choice([0.05, 0.3, 0.7, 0.8, 1.05, 1.3]))
        for number in victims:
            group.thaw(number)
        time.sleep(rng.uniform(0, 0.2))


def slow_links(group, rng):
    """Each direction between two servers has a delay of its own."""
    if not group.links:
        return freeze_briefly(group, rng)
    for links in group.links:
        for number in range(SERVERS):
            links.delay([number], rng.choice([0, 0.02, 0.2, 0.6, 1]), rng.choice([0, 0.02, 0.2, 0.6, 1]))
    group.note("all links are slow")
    hold(rng)
    rng.choice([promote, failover, hold_longer])(group, rng)
    hold(rng)
    return group.join_again(rng.random() < 0.3)


def hold_longer(_, rng):
    time.sleep(rng.uniform(1, 3))


FAULTS = {  # with their weights
    "kill-primary": (3, kill_primary), "freeze-primary": (3, freeze_primary), "cut-primary": (4, cut_primary),
    "cut-replica": (1, cut_replica), "promote": (1, promote), "promote-both": (2, promote_both),
    "fenced-twice": (1, fenced_twice), "failover": (3, failover), "failover-killed": (2, failover_killed),
    "restart-primary": (3, restart_primary), "kill-replica": (1, kill_replica), "freeze-replica": (1, freeze_replica),
    "old-replica": (3, old_replica), "new-replica": (2, new_replica), "moved-directory": (1, moved_directory),
    "two-faults": (3, two_faults),
    "late-acknowledgement": (4, late_acknowledgement), "delayed-acknowledgements": (4, delayed_acknowledgements),
    "lost-stream": (4, lost_stream), "deaf-primary": (4, deaf_primary), "promote-in-vain": (2, promote_in_vain),
    "freeze-all": (2, freeze_all), "freeze-briefly": (2, freeze_briefly), "slow-links": (3, slow_links),
}
FOR_GENUINE = {"kill-primary", "freeze-primary", "cut-primary", "promote", "failover", "old-replica"}
