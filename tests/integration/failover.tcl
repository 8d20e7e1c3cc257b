# FAILOVER makes a replica the primary without losing a write.

proc role_of {level} {lindex [r $level role] 0}
proc state {level} {
    regexp {master_failover_state:([a-z-]+)} [r $level info replication] -> state
    return $state
}
proc link_is_up {level} {string match "*master_link_status:up*" [r $level info replication]}
proc follow {level of} {
    r $level replicaof [srv $of host] [srv $of port]
    wait_for_condition 15000 {[link_is_up $level]}
    wait_for_condition 15000 {[string match "*port=[srv $level port],state=online*" [r $of info replication]]}
}

start_server {overrides {repl-diskless-sync-delay 0}} {
    test "FAILOVER needs replicas" {
        replies {
            {failover} "-ERR FAILOVER requires connected replicas."
            {failover abort} "-ERR No failover in progress."
        }
        assert_equal no-failover [state 0]
    }

    start_server {overrides {repl-diskless-sync-delay 0}} {
        follow 0 -1

        test "errors of FAILOVER" {
            set host [srv host]
            set port [srv port]
            foreach {command error} [string map [list <host> $host <port> $port] {
                {failover to <host> 1} "-ERR FAILOVER target HOST and PORT is not a replica."
                {failover to <host>} "-ERR syntax error"
                {failover force} "-ERR FAILOVER with force option requires both a timeout and target HOST and IP."
                {failover to <host> <port> force}\
                    "-ERR FAILOVER with force option requires both a timeout and target HOST and IP."
                {failover timeout} "-ERR syntax error"
                {failover timeout 0} "-ERR FAILOVER timeout must be greater than 0"
                {failover timeout x} "-ERR value is not an integer or out of range"
                {failover to <host> x} "-ERR value is not an integer or out of range"
                {failover foo} "-ERR syntax error"
                {failover abort x} "-ERR syntax error"
            }] {
                assert_equal $error [r -1 -typed {*}$command] $command
            }
            assert_equal "-ERR FAILOVER is not valid when server is a replica." [r -typed failover]
            assert_match "*ERR PSYNC FAILOVER can't be sent to a master.*" \
                [r -1 -typed psync [string repeat a 40] 1 failover]
            assert_match "*ERR PSYNC FAILOVER replid must match my replid.*" \
                [r -typed psync [string repeat a 40] 1 failover]
        }

        test "writes wait while the replica catches up, and are refused by the server that handed over" {
            exec kill -STOP [srv pid]
            r -1 set before 1
            assert_equal OK [r -1 failover timeout 60000]
            assert_equal waiting-for-sync [state -1]
            assert_equal "-ERR FAILOVER already in progress." [r -1 -typed failover]
            assert_equal "-ERR REPLICAOF not allowed while failing over." [r -1 -typed replicaof no one]
            set c [new_client -level -1]
            $c -send set during 1
            assert_equal 1 [r -1 get before]
            assert_equal {} [r -1 get during]
            exec kill -CONT [srv pid]
            wait_for_condition 15000 {[role_of 0] eq "master" && [role_of -1] eq "slave" && [link_is_up -1]}
            assert_error_like "READONLY*" {$c -read}
            $c -close
            assert_equal no-failover [state -1]
            assert_equal 1 [r get before]
            # The replication history is the same.
            assert_equal 1 [info_field stats sync_partial_ok]
            assert_equal 0 [info_field stats sync_full]
            r set after 1
            wait_for_condition 5000 {[r -1 get after] eq "1"}
        }

        test "FAILOVER back to a named replica" {
            assert_equal OK [r failover to [srv -1 host] [srv -1 port] timeout 30000]
            wait_for_condition 15000 {[role_of -1] eq "master" && [role_of 0] eq "slave" && [link_is_up 0]}
            assert_equal OK [r -1 set k 1]
        }

        test "a replica that serves no stale data takes over" {
            r config set replica-serve-stale-data no
            assert_equal OK [r -1 failover]
            wait_for_condition 15000 {[role_of 0] eq "master" && [role_of -1] eq "slave" && [link_is_up -1]}
            assert_equal OK [r set k 1]
            assert_equal OK [r failover]
            wait_for_condition 15000 {[role_of -1] eq "master" && [role_of 0] eq "slave" && [link_is_up 0]}
            r config set replica-serve-stale-data yes
        }

        test "after FAILOVER ABORT or a timeout the primary continues" {
            exec kill -STOP [srv pid]
            r -1 set k 2
            assert_equal OK [r -1 failover]
            set c [new_client -level -1]
            $c -send set k 3
            assert_equal OK [r -1 failover abort]
            assert_equal OK [$c -read]
            assert_equal OK [r -1 failover timeout 50]
            $c -send set k 4
            assert_equal OK [$c -read]
            assert_equal no-failover [state -1]
            assert_equal master [role_of -1]
            assert {[log_has "FAILOVER to any replica aborted: Replica never caught up before timeout" 0 -1]}
            exec kill -CONT [srv pid]
            wait_for_condition 15000 {[r get k] == 4}
        }

        test "a pause by CLIENT PAUSE continues after an aborted failover" {
            r -1 client pause 100000 write
            exec kill -STOP [srv pid]
            r -1 failover
            r -1 failover abort
            set c [new_client -level -1]
            $c -send set k 5
            assert_equal 4 [r -1 get k]
            r -1 client unpause
            assert_equal OK [$c -read]
            exec kill -CONT [srv pid]
        }

        test "CLIENT UNPAUSE does not end the pause of a failover" -needs {ours 1} {
            wait_for_condition 15000 {[r get k] == 5}
            exec kill -STOP [srv pid]
            assert_equal OK [r -1 set k 6]
            assert_equal OK [r -1 failover]
            r -1 client unpause
            assert_match "*paused_reason:failover_in_progress*" [r -1 info clients]
            set c [new_client -level -1]
            $c -send set k 5
            assert_equal 6 [r -1 get k]
            assert_equal OK [r -1 failover abort]
            assert_equal OK [$c -read]
            exec kill -CONT [srv pid]
        }

        test "FORCE makes a replica the primary that does not answer in time" {
            wait_for_condition 15000 {[r get k] == 5}
            set waits [new_client -level -1]
            $waits -send brpop list 0
            wait_for_condition 5000 {[string match "*blocked_clients:1*" [r -1 info clients]]}
            exec kill -STOP [srv pid]
            assert_equal OK [r -1 failover to [srv host] [srv port] force timeout 100]
            wait_for_condition 5000 {[state -1] eq "failover-in-progress"}
            # The other server would redirect this client back, so it waits, and the client that waits for a key
            # continues to wait.
            set reads [new_client -level -1]
            $reads client capa redirect
            $reads -send get k
            wait_for_condition 5000 {[string match "*blocked_clients:2*" [r -1 info clients]]}
            exec kill -CONT [srv pid]
            wait_for_condition 15000 {[role_of 0] eq "master" && [role_of -1] eq "slave" && [link_is_up -1]}
            assert_equal no-failover [state -1]
            assert_error "REDIRECT [srv host]:[srv port]" {$reads -read}
            assert_error_like "UNBLOCKED force unblock*" {$waits -read}
            assert_equal 1 [$waits -eof]
        }

        test "ABORT while the replica does not answer makes this server the primary again" {
            exec kill -STOP [srv -1 pid]
            set waits [new_client]
            $waits -send brpop list 0
            wait_for_condition 5000 {[info_field clients blocked_clients] == 1}
            assert_equal OK [r failover to [srv -1 host] [srv -1 port] force timeout 100]
            wait_for_condition 5000 {[state 0] eq "failover-in-progress"}
            assert_equal OK [r failover abort]
            assert_equal 1 [r rpush list x]
            assert_equal {list x} [$waits -read]
            $waits -close
            assert_equal master [role_of 0]
            assert_equal OK [r set k 6]
            exec kill -CONT [srv -1 pid]
            wait_for_condition 15000 {[link_is_up -1] && [r -1 get k] == 6}
        }

        test "a write that CLIENT PAUSE holds stays held when a failover within the pause has ended" {
            wait_for_condition 15000 {[string match "*state=online*" [r info replication]]}
            r client pause 100000 write
            set held [new_client]
            set id [$held client id]
            $held -send set k 7
            wait_for_condition 5000 {[regexp "id=$id .* flags=b " [r client list]]}
            assert_equal OK [r failover]
            wait_for_condition 15000 {[role_of 0] eq "slave" && [link_is_up 0] && [state 0] eq "no-failover"}
            assert_match "*flags=b*" [r client list id $id]
            assert_equal "-READONLY You can't write against a read only replica." [r -typed set k 8]
            r client unpause
            assert_error_like "READONLY*" {$held -read}
        }
    }
}
