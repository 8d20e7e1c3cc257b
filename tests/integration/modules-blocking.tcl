# Modules whose clients wait for keys, and whose calls wait; channels that commands name; child processes; long
# commands. The module is tests/modules/blocking.c.

set blocking [file join $::root build modules blocking.so]
# The command fails with an error that matches the pattern.
start_server [list overrides [list loadmodule $blocking save ""] tags {modules}] {
    test "a client that waits for keys is served when the module says so, and learns the key" {
        set c [new_client]
        $c -send blocking.wait 2 0 a b
        wait_blocked 1
        r blocking.counts
        r lpush b 1
        assert_equal 1 [info_field blocked_clients]
        assert_equal {0 1} [r blocking.counts] ;# called once, though the function has opened the key for writing
        r del b
        r lpush b 1 2
        assert_equal b [$c -read]
        wait_blocked 0
        wait_for_condition 5000 {[lindex [r blocking.counts] 0] == 1} "the data of the client is not freed"
    }

    test "a string does not serve a client of a module, until it is signalled" {
        r del s
        set c [new_client]
        $c -send blocking.wait 1 0 s
        wait_blocked 1
        r blocking.counts
        r set s text
        assert_equal {0 0} [r blocking.counts]
        assert_equal OK [r blocking.signal s]
        assert_equal s [$c -read]
    }

    test "a key serves a client of a module when it comes, and not when it grows, unless it is signalled" {
        r del g
        set c [new_client]
        $c -send blocking.wait 3 0 g
        wait_blocked 1
        r blocking.counts
        r lpush g 1
        assert_equal {0 1} [r blocking.counts]
        r lpush g 2 3
        assert_equal {0 0} [r blocking.counts]
        r blocking.signal g
        assert_equal g [$c -read]
    }

    test "a wait for keys ends at its timeout, by CLIENT UNBLOCK and by the module" {
        set c [new_client]
        $c -send blocking.wait 1 20 none
        assert_equal TIMEOUT [$c -read]
        set id [$c client id]
        $c -send blocking.wait 1 0 none
        wait_blocked 1
        assert_equal 1 [r client unblock $id]
        assert_equal TIMEOUT [$c -read]
        $c -send blocking.wait 1 0 none
        wait_blocked 1
        assert_equal 1 [r client unblock $id error]
        assert_error_like "UNBLOCKED *" {$c -read}
        $c -send blocking.wait 1 0 none
        wait_blocked 1
        assert_equal 0 [r blocking.unblock]
        assert_equal TIMEOUT [$c -read]
    }

    test "a client whose timeout changes its key is answered once" {
        r del p
        set c [new_client]
        $c -send blocking.push 1 20 p
        assert_equal PUSHED [$c -read]
        assert_equal PONG [$c ping]
        assert_equal 1 [r llen p]
    }

    test "a client without a function for the timeout is unblocked by nothing but its keys" {
        r del d
        set c [new_client]
        set id [$c client id]
        r lpush d 1
        $c -send blocking.deleted 5 0 d
        wait_blocked 1
        assert_equal {0 1} [list [r client unblock $id] [r blocking.unblock]]
        r del d
        assert_equal DELETED [$c -read]
    }

    test "a client that waits for keys may go" {
        set c [new_client]
        $c -send blocking.wait 1 0 none
        wait_blocked 1
        r blocking.counts
        $c -close
        wait_blocked 0
        wait_for_condition 5000 {[lindex [r blocking.counts] 0] == 1} "the data of the client is not freed"
    }

    test "a transaction and a script do not wait for keys" {
        r multi
        r blocking.wait 1 0 none
        assert_match "*Blocking module command called from transaction*" [r exec]
        assert_error_like "*ERR Blocking module command called from Lua script*" {
            r eval {return redis.call('blocking.wait', 1, 0, 'none')} 0
        }
    }

    test "a call of a module waits for the command" {
        r del l answers
        set c [new_client]
        $c -send blocking.call blpop l 0
        wait_blocked 1
        r lpush l x
        assert_equal {l x} [$c -read]
        wait_blocked 0
        assert_equal {0 1} [list [r exists l] [r get answers]]
        r lpush l y
        assert_equal {l y} [r blocking.call blpop l 0]
    }

    test "a call that waits within one that waits" {
        r del l
        set c [new_client]
        $c -send blocking.call blocking.call blpop l 0
        wait_blocked 1
        r lpush l x
        assert_equal {l x} [$c -read]
        wait_blocked 0
    }

    test "a call that waits is aborted when its client goes" {
        r del l
        r blocking.counts
        set c [new_client]
        $c -send blocking.call blpop l 0
        wait_blocked 1
        $c -close
        wait_blocked 0
        assert_equal 1 [lindex [r blocking.counts] 1]
        r lpush l x
        assert_equal 1 [r llen l]
    }

    test "a call goes on when the module frees its promise" {
        r del l
        assert_equal PROMISE [r blocking.forget blpop l 0]
        assert_equal {0 1} [list [info_field blocked_clients] [info_field total_blocking_keys]]
        r lpush l x
        assert_equal {0 0} [list [r exists l] [info_field total_blocking_keys]]
        assert_equal DONE [r blocking.forget lpush l x]
    }

    test "calls that wait end when the server becomes a replica" {
        r del l
        set c [new_client]
        $c -send blocking.call blpop l 0
        wait_blocked 1
        r replicaof 127.0.0.1 [free_port]
        assert_error_like "UNBLOCKED force unblock from blocking operation*" {$c -read}
        wait_blocked 0
        r replicaof no one
        r lpush l x
        assert_equal 1 [r llen l]
    }

    test "users' rules for channels apply to those that a command names" {
        r acl setuser u on nopass +@all resetchannels &open* ~*
        assert_equal OK [r acl dryrun u blocking.channels open closed open*]
        assert_equal OK [r acl dryrun u blocking.channels open1]
        assert_match "*'closed' channel" [r acl dryrun u blocking.channels closed x open*]
        assert_match "*'other*' channel" [r acl dryrun u blocking.channels open x other*]
        assert_equal 3 [r blocking.channels a b c]
    }

    test "a child process of a module" {
        assert {[r blocking.fork 7 50] > 0}
        assert_equal 1 [info_field module_fork_in_progress]
        wait_for_condition 5000 {[r blocking.status] == 7} "the child does not end"
        assert_equal 0 [info_field module_fork_in_progress]
        set child [r blocking.fork 7 100000]
        assert_error "ERR no child" {r blocking.fork 1 1}
        assert_equal 1 [r blocking.kill [expr {$child + 1}]]
        assert_equal 0 [r blocking.kill $child]
        assert_equal {-1 0} [list [r blocking.status] [info_field module_fork_in_progress]]
    }

    test "a long command that yields lets others be told so, and those that may" {
        r config set busy-reply-threshold 10
        set c [new_client]
        $c -send blocking.work
        $c -send ping
        wait_for_condition 5000 {[catch {r ping} error]} "the server is not busy"
        assert_equal "BUSY At work" $error
        assert_equal OK [r blocking.end]
        assert_equal {WORKED PONG} [list [$c -read] [$c -read]]
        assert_equal PONG [r ping]
        r config set busy-reply-threshold 5000
    }
}
