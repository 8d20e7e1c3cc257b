# A replica redirects clients that declared the capability to its primary.

# REPLICAOF is rejected while a copy is loaded.
proc be_primary {} {
    wait_for_condition 10000 {![catch {r replicaof no one}]}
    wait_for_condition 10000 {[info_field persistence loading] == 0}
}

start_server {overrides {repl-diskless-sync-delay 0}} {
    set host [srv host]
    set port [srv port]
    start_server {} {
        r set k local
        r replicaof $host $port
        wait_for_condition 15000 {[string match "*master_link_status:up*" [r info replication]]}
        r -1 set k v
        wait_for_condition 5000 {[r get k] eq "v"}

        test "commands on data are redirected, others are not" {
            set c [new_client]
            $c client capa redirect
            foreach command {{get k} {set k x} {dbsize} {keys *} {randomkey} {exists k} {flushall}\
                {eval_ro "return 1" 1 k}} {
                assert_equal "-REDIRECT $host:$port" [$c -typed {*}$command] $command
            }
            assert_equal PONG [$c ping]
            assert_equal 0 [$c publish channel x]
            assert_equal OK [$c watch k]
            assert_match "* capa=r *" [$c client list id [$c client id]]
            $c multi
            assert_equal "-REDIRECT $host:$port" [$c -typed get k]
            assert_match "-EXECABORT*" [$c -typed exec]
        }

        test "EXEC is redirected as the commands are that it would run, and its transaction is dropped" {
            set c [new_client]
            $c client capa redirect
            be_primary
            foreach queued {{set k x} {get k}} {
                $c multi
                assert_equal QUEUED [$c {*}$queued]
                r replicaof $host $port
                assert_equal "-REDIRECT $host:$port" [$c -typed exec]
                assert_equal "-ERR EXEC without MULTI" [$c -typed exec]
                be_primary
            }
            $c multi
            $c ping
            r replicaof $host $port
            wait_for_condition 15000 {[string match "*master_link_status:up*" [r info replication]]} ;# and not loading
            assert_equal PONG [$c exec]
        }

        test "clients that wait when the role changes: redirected, ended, or left alone" {
            be_primary
            set ended "UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)"
            foreach {command redirect readonly outcome} {
                {brpop list 0}           no  no  ended
                {xread block 0 streams s 0} no no ended
                {wait 9 0}               no  no  ended
                {brpop list 0}           no  yes ended
                {xread block 0 streams s 0} no yes waits
                {wait 9 0}               no  yes waits
                {brpop list 0}           yes no  redirected
                {xread block 0 streams s 0} yes no redirected
                {wait 9 0}               yes no  ended
                {brpop list 0}           yes yes redirected
                {xread block 0 streams s 0} yes yes waits
            } {
                set c [new_client]
                if {$redirect} {$c client capa redirect}
                if {$readonly} {$c readonly}
                $c -send {*}$command
                wait_for_condition 5000 {[info_field clients blocked_clients] == 1}
                r replicaof $host $port
                switch $outcome {
                    ended {
                        assert_error $ended {$c -read}
                        assert_equal 1 [$c -eof]
                    }
                    redirected {
                        assert_error "REDIRECT $host:$port" {$c -read}
                        # PING would be rejected while the copy of the new primary is loaded.
                        assert_match {[0-9]*} [$c client id]
                    }
                    waits {
                        assert_equal 1 [info_field clients blocked_clients]
                        r client unblock [lindex [regexp -inline {id=(\d+) [^\n]*flags=b} [r client list]] 1]
                    }
                }
                $c -close
                be_primary
                wait_for_condition 5000 {[info_field clients blocked_clients] == 0}
            }
            r replicaof $host $port
            wait_for_condition 15000 {[string match "*master_link_status:up*" [r info replication]]}
        }

        test "clients that wait on a replica are ended, too, when it gets another primary" {
            foreach {readonly outcome} {no ended yes waits} {
                set c [new_client]
                if {$readonly} {$c readonly}
                $c -send xread block 0 streams s 0
                wait_for_condition 5000 {[info_field clients blocked_clients] == 1}
                r replicaof 127.0.0.1 1
                if {$outcome eq "ended"} {
                    assert_error_like "UNBLOCKED force unblock from blocking operation*" {$c -read}
                    assert_equal 1 [$c -eof]
                } else {
                    assert_equal 1 [info_field clients blocked_clients]
                }
                $c -close
                r replicaof $host $port
                wait_for_condition 15000 {[string match "*master_link_status:up*" [r info replication]]}
                wait_for_condition 5000 {[info_field clients blocked_clients] == 0}
            }
        }

        test "READONLY allows reads" {
            set c [new_client]
            $c client capa redirect
            assert_equal OK [$c readonly]
            assert_equal v [$c get k]
            assert_equal "-REDIRECT $host:$port" [$c -typed set k x]
            assert_equal OK [$c readwrite]
            assert_equal "-REDIRECT $host:$port" [$c -typed get k]
        }

        test "clients without the capability read, and get the usual error for writes" {
            assert_equal v [r get k]
            assert_match "-READONLY*" [r -typed set k x]
        }

        test "a primary does not redirect clients" {
            set c [new_client]
            $c client capa redirect
            assert_equal "-REDIRECT $host:$port" [$c -typed get k]
            be_primary
            assert_equal v [$c get k]
            assert_equal OK [$c set k x]
        }
    }
}
