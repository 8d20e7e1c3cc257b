# Replies about replication, users, modules and cluster mode from a server that does not use them: those of a Valkey
# primary without replicas, with the default user, without modules, with cluster mode disabled.

start_server {tags {absent-features}} {
    test "ROLE is that of a primary without replicas" {
        assert_typed {* $master :0 *} role
        assert_equal {master 0 {}} [r role]
        arity_errors {{role x}}
    }

    test "WAIT is refused on a replica, where min-replicas-to-write does not count" -needs {ours 1} {
        r config set min-replicas-to-write 1 replica-read-only no
        r debug role replica 127.0.0.1 1
        assert_error "ERR WAIT cannot be used with replica instances. Please also note that if a replica is\
            configured to be writable (which is not the default) writes to replicas are just local and are not\
            propagated." {r wait 0 0}
        assert_equal OK [r set k 1]
        r debug role primary
        r config set min-replicas-to-write 0 replica-read-only yes
    }

    test "WAIT replies immediately if no replica is requested, and otherwise after its timeout" {
        assert_typed :0 wait 0 0
        assert_typed :0 wait -1 0
        set began [clock milliseconds]
        assert_typed :0 wait 1 50
        assert {[clock milliseconds] - $began >= 50}
        r multi
        r wait 1 0
        assert_equal 0 [r exec]
        replies {
            {wait x 0} "-ERR value is not an integer or out of range"
            {wait 0 x} "-ERR timeout is not an integer or out of range"
            {wait 0 -1} "-ERR timeout is negative"
        }
        arity_errors {wait {wait 0} {wait 0 0 0}}
    }

    test "CLIENT UNBLOCK ends WAIT" {
        set c [new_client]
        set id [$c client id]
        $c -send wait 1 0
        wait_for_condition 5000 {[string match "*flags=b*" [r client list id $id]]} "the client does not wait"
        assert_typed :1 client unblock $id
        assert_equal 0 [$c -read]
        $c -send wait 1 0
        wait_for_condition 5000 {[string match "*flags=b*" [r client list id $id]]} "the client does not wait"
        assert_typed :1 client unblock $id error
        assert_error "UNBLOCKED client unblocked via CLIENT UNBLOCK" {$c -read}
        assert_equal PONG [$c ping]
    }

    test "min-replicas-to-write refuses writes while no replica is there" {
        r set k 1
        assert_not_match "*min_slaves_good_slaves*" [r info replication]
        r config set min-replicas-to-write 1
        assert_match "*min_slaves_good_slaves:0*" [r info replication]
        replies {
            {set k 2} "-NOREPLICAS Not enough good replicas to write."
            {flushall} "-NOREPLICAS Not enough good replicas to write."
            {get k} {$1}
            {publish k m} :0
        }
        r multi
        assert_error "NOREPLICAS Not enough good replicas to write." {r incr k}
        assert_error "EXECABORT Transaction discarded because of previous errors." {r exec}
        # Without a limit for the lag the check is off.
        r config set min-replicas-max-lag 0
        assert_equal OK [r set k 2]
        r config set min-replicas-max-lag 10 min-replicas-to-write 0
        assert_equal OK [r set k 3]
    }

    test "min-replicas-to-write counts from the start on" {
        start_server {overrides {min-replicas-to-write 1}} {
            assert_error "NOREPLICAS Not enough good replicas to write." {r set k 1}
        }
    }

    test "MODULE LIST has the module that is built in" -needs {ours 1} {
        assert_equal {{name lua ver 1 path lua args {}}} [r module list]
        assert_match "MODULE <subcommand>*" [lindex [r module help] 0]
    }

    test "CLUSTER KEYSLOT is answered, the rest of CLUSTER says that cluster mode is disabled" {
        # Of the first braces with text between them, only that text counts.
        foreach {key slot} [list foo 12182 "" 0 123456789 12739 "{foo}bar" 12182 "x{foo}y{bar}" 12182 "{}foo" 9500 \
                "a\{foo" 113 "a{}foo" 16292 "a{}{foo}" 700] {
            assert_equal $slot [r cluster keyslot $key] $key
        }
        foreach subcommand {info myid nodes shards slots help} {
            assert_error "ERR This instance has cluster support disabled" {r cluster $subcommand}
        }
        assert_error "ERR unknown subcommand 'nosuch'. Try CLUSTER HELP." {r cluster nosuch}
        assert_error "ERR wrong number of arguments for 'cluster|keyslot' command" {r cluster keyslot}
    }

    test "SHUTDOWN takes SAFE, and refuses FAILOVER outside of a cluster" {
        assert_error "ERR SHUTDOWN FAILOVER is only supported in cluster mode." {r shutdown nosave failover}
        assert_error "ERR syntax error" {r shutdown safe abort}
        assert_equal PONG [r ping]
    }

    test "outside a cluster all subcommands of CLUSTER are known and refused, with their arity and flags" {
        foreach sub {
            addslots addslotsrange bumpepoch cancelslotmigrations count-failure-reports countkeysinslot delslots\
                delslotsrange failover flushslot flushslots forget getkeysinslot getslotmigrations help info links meet\
                migrateslots myid myshardid nodes replicas replicate reset saveconfig set-config-epoch setslot shards\
                slaves slot-stats slots syncslots
        } {
            set info [lindex [r command info cluster|$sub] 0]
            assert_equal cluster|$sub [lindex $info 0]
            set arguments [lrepeat [expr {abs([lindex $info 1]) - 2}] 1]
            assert_error "ERR This instance has cluster support disabled" [list r cluster $sub {*}$arguments]
            if {[llength $arguments]} {
                assert_error "ERR wrong number of arguments for 'cluster|$sub' command" [list r cluster $sub]
            }
        }
        assert_error "ERR unknown subcommand 'none'. Try CLUSTER HELP." {r cluster none}
        catch {r eval {redis.call('cluster', 'reset')} 0} error
        assert_match "ERR This Valkey command is not allowed from script*" $error
    }
}
