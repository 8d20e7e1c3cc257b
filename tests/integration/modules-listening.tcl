# Modules: listeners that let the client of the command wait, the event of keys that go, references in hashes, the keys
# of requests, and descriptors in the loop. The module is tests/modules/listening.c.

set listening [file join $::root build modules listening.so]

start_server {overrides {enable-module-command yes} tags {modules}} {
    r module load $listening

    test "a listener holds the reply of the command, and the client executes nothing meanwhile" {
        r set k v
        r listening.block 1
        set c [new_client]
        $c -send get k
        $c -send set k w
        $c -send get k
        assert_equal v [$c -read]
        wait_for_condition 5000 {[info_field blocked_clients] == 1}
        assert_equal "" [$c -available]
        assert_equal set:k [r listening.heard]
        assert_equal w [r get k]
        r listening.block 0
        assert_equal 1 [r listening.unblock]
        assert_equal {OK w} [list [$c -read] [$c -read]]
        assert_equal 0 [info_field blocked_clients]
    }

    test "a listener that writes hears all events of a command, but not its own" {
        r del counter
        r listening.block 2
        r mset x 1 y 2
        r rename x z
        assert_equal 4 [r get counter]
        assert_equal "set:x set:y rename_from:x rename_to:z" [r listening.heard]
        r listening.block 0
    }

    test "a read that a listener holds stays held when other reads may pass" {
        r listening.block 1
        set c [new_client]
        $c -send get nokey
        wait_for_condition 5000 {[info_field blocked_clients] == 1}
        r debug reply-barrier pass-reads
        r debug reply-barrier off
        assert_equal "" [$c -available]
        r listening.unblock
        assert_equal {} [$c -read]
        assert_equal "keymiss:nokey" [r listening.heard]
        r listening.block 0
    }

    test "a command waits once, also one that only reads, and not in a transaction or a script" {
        r mset a 1
        r listening.block 1
        set c [new_client]
        $c -send get nokey
        wait_for_condition 5000 {[info_field blocked_clients] == 1}
        r listening.unblock
        assert_equal {} [$c -read]
        $c -send rename a b
        wait_for_condition 5000 {[info_field blocked_clients] == 1}
        r listening.unblock
        assert_equal OK [$c -read]
        assert_equal "keymiss:nokey rename_from:a rename_to:refused" [r listening.heard]
        r multi
        r set a 1
        r exec
        r eval {return server.call('set', KEYS[1], 1)} 1 a
        assert_equal "set:refused set:refused" [r listening.heard]
        r listening.block 0
        assert_equal 0 [r listening.unblock]
    }

    test "the module learns that a client that waits has gone" {
        r listening.block 1
        set c [new_client]
        $c -send set a 2
        wait_for_condition 5000 {[info_field blocked_clients] == 1}
        $c -close
        wait_for_condition 5000 {[info_field blocked_clients] == 0}
        assert_equal "set:a gone:" [r listening.heard]
        r listening.block 0
        assert_equal 0 [r listening.unblock]
    }

    test "a module learns which keys go, and why, before they do" {
        foreach {command expected} {
            {set a 3} overwritten:a   {append a 4} ""            {rename a b} "deleted:b deleted:a"
            {copy b d} ""             {copy b d replace} deleted:d   {getdel d} deleted:d
            {lpush l 1} ""            {sort l store l} overwritten:l {lpop l} deleted:l
            {sadd s 1} ""             {sunionstore s s} overwritten:s {expire s -1} expired:s
            {set b 1 px 1} overwritten:b
        } {
            r {*}$command
            assert_equal $expected [r listening.heard] $command
        }
        wait_for_condition 5000 {[r exists b] == 0}
        assert_equal expired:b [r listening.heard]
    }

    test "a field may refer to bytes of a module, until it is set otherwise" {
        r hset h f v
        assert_equal {0 1} [r listening.refer h f reference]
        assert_equal reference [r hget h f]
        r hset h f v
        assert_equal {-1 0} [r listening.refer h f ""]
        assert_equal {1 0} [r listening.refer h nofield reference]
        r hexpire h 100 fields 1 f
        r listening.refer h f [string repeat x 2000]
        assert_equal {2000 100} [list [string length [r hget h f]] [r httl h fields 1 f]]
    }

    test "a module asks for the keys of a request" {
        assert_equal {1 0} [r listening.keys set k v]
        # Like Valkey it tells flags only of commands whose key specs do not say all.
        assert_equal {1 0 2 0} [r listening.keys mget a b]
        assert_equal {0 -22 -2} [list [r listening.keys ping] [r listening.keys set] [r listening.keys nosuch]]
    }

    test "a module watches descriptors, and has functions called once" {
        r listening.heard
        assert_equal 1 [r listening.pipe text]
        set said ""
        wait_for_condition 5000 {[string match "*once*" [append said " " [r listening.heard]]]}
        assert_equal "read:text once:text" [join $said]
        r module unload listening
    }
}

start_cluster [list primaries 2 overrides [list loadmodule $listening] tags {modules}] {
    test "no slots migrate while a module is loaded that does not know migrations" -needs {ours 1} {
        set refused "ERR The module listening does not support atomic slot migrations.*"
        set target [n 1 cluster myid]
        assert_error_like $refused {n 0 cluster migrateslots slotsrange 0 0 node $target}
        assert_error_like $refused {n 1 cluster syncslots establish source $target name $target slotsrange 0 0}
    }
}
