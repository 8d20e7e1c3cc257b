# Modules: server events, command filters and users. The module is tests/modules/watching.c.


start_server {overrides {enable-module-command yes} tags {modules}} {
    test "a module learns of what happens to the server" {
        r module load [test_module watching]
        assert_equal "" [r watching.events] ;# its own load is not among it
        r flushdb async
        r flushall sync
        assert_equal "flush:0:0,0 flush:1:0,0 flush:0:1,-1 flush:1:1,-1" [r watching.events]
        r config set hz 11 timeout 5
        assert_equal "config:0:hz config:0:timeout" [r watching.events]
        r swapdb 1 2
        assert_equal "swap:0:1,2" [r watching.events]
        r acl setuser someone on >secret +@all ~* &* alldbs
        catch {r auth someone wrong}
        r auth someone secret
        assert_equal "login:1:someone login:0:someone" [r watching.events]
        r module load [test_module sections]
        r module unload sections
        assert_equal "module:0:sections module:1:sections" [r watching.events]
        r save
        assert_equal "save:2 save:3" [r watching.events]
        r config set loading-process-events-interval-bytes 1024
        r debug populate 5000 key 50
        r watching.events
        r debug reload
        assert_match "save:* progress:0 save:end" "[r watching.events] save:end"
        r flushall
        r watching.events
        r replicaof 127.0.0.1 1
        r replicaof no one
        assert_equal "role:1:replica role:0:primary" [r watching.events]
        r config set hz 10 timeout 0
    }

    test "a filter changes requests of clients, transactions, scripts and modules" -needs {ours 1} {
        r del l
        r rpush l @double
        assert_equal {one two} [r lrange l 0 -1]
        assert_equal PONG [r ping @drop]
        assert_equal [r client id] [r echo @id]
        r multi
        r rpush l @double
        assert_equal 4 [r exec]
        assert_equal 6 [r eval {return redis.call('rpush', KEYS[1], '@double')} 1 l]
        assert_equal 8 [r watching.call rpush l @double]
        r del l
    }

    test "a request that is held back passes the filters once" -needs {ours 1} {
        set c [new_client]
        foreach expected {1 2} {
            r client pause 100000 write
            $c -send set counted @count
            $c -send set plain x
            wait_for_condition 5000 {[info_field clients blocked_clients] == 1}
            r client unpause
            assert_equal {OK OK} [list [$c -read] [$c -read]]
            assert_equal $expected [r get counted]
        }
    }

    test "a filter that has ended is not ended again" -needs {ours 1} {
        assert_equal {0 1} [r watching.end_twice]
        assert_equal PONG [r ping]
    }

    test "a client that a filter closes executes nothing" -needs {ours 1} {
        set c [new_client]
        catch {$c set late @close} error
        assert_match "*closed*" $error
        $c -close
        assert_equal 0 [r exists late]
        assert_equal {} [r keys clo*]
    }

    test "a change of the role names the second id of the history" -needs {ours 1} {
        start_server {overrides {repl-diskless-sync-delay 0}} {
            r -1 replicaof [srv host] [srv port]
            wait_for_condition 10000 {[string match "*master_link_status:up*" [r -1 info replication]]}
            r -1 replicaof no one
            regexp {master_replid2:(\S+).*second_repl_offset:(\S+)} [r -1 info replication] -> id offset
            assert_equal "$id $offset" [r -1 watching.ids]
            assert_not_match 000* $id
        }
    }

    test "INFO names the modules whose functions a module uses, and by which it is used" {
        r module load [test_module sections]
        set info [r info modules]
        assert_match "*name=watching,*usedby=\\\[sections\\\],using=\\\[\\\]*" $info
        assert_match "*name=sections,*usedby=\\\[\\\],using=\\\[watching\\\]*" $info
        assert_error "ERR Error unloading module: the module exports APIs used by other modules. Please unload\
            them first and try again" {r module unload watching}
        r module unload sections
        r watching.events
    }

    test "a module does not unload itself" -needs {ours 1} {
        assert_error "ERR Error unloading module: the module runs: one of its calls unloads it" {
            r watching.call module unload watching
        }
    }

    test "rules of a module's user, and what they permit" -needs {ours 1} {
        assert_equal {{on ~a* resetchannels -@all +get} 0} [r watching.user "on ~a* +get" abc]
        assert_equal 13 [lindex [r watching.user "on ~a* +get" b] 1]
        assert_error "Error in ACL SETUSER modifier '+nosuch': Unknown command or category name in ACL" \
            {r watching.user "on +nosuch" b}
        assert_not_match "*watched*" [r acl users]
    }

    test "a module that a rule names is not unloaded" -needs {ours 1} {
        r acl setuser someone +watching.events
        assert_error "ERR Error unloading module: one or more ACL users reference commands from this module. Remove\
            those ACL rules before unloading" {r module unload watching}
        r auth default x
        r acl deluser someone
        r module unload watching
        assert_equal @double [r echo @double]
    }
}
