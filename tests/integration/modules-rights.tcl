# Modules: the users that their calls run as, and users that go. The module is tests/modules/rights.c.

set rights [file join $::root build modules rights.so]
proc refused {pattern command} {
    if {![catch {uplevel 1 $command} error]} {fail "no error, but: $error"}
    assert_match $pattern $error
}
set no_user "ERR cannot run as user, no user directly attached to context*"

start_server [list overrides [list loadmodule $rights enable-module-command yes] tags {modules}] {
    set admin [new_client]
    $admin acl setuser admin on nopass ~* &* +@all
    $admin auth admin x

    test "a call acts for no user, or with the modifier C for that of the client" {
        assert_equal {{} default} [list [r rights.call "" acl whoami] [r rights.call C acl whoami]]
        assert_equal {{} default} [list [r rights.call "" rights.name] [r rights.call C rights.name]]
        assert_match "*user=(superuser)*" [r rights.call "" client info]
        refused $no_user {r rights.call "" rights.call C set x y}
    }

    test "a call without a user has all rights, also for its scripts, whatever the default user may do" {
        set write {return server.call('set', 'a', ARGV[1])}
        $admin acl setuser default -@all +rights.call +rights.last +rights.later +rights.now +blpop +info
        assert_equal OK [r rights.call "" set a 1]
        refused "NOPERM *" {r rights.call C set a 2}
        assert_equal OK [r rights.call "" eval $write 0 3]
        $admin acl setuser default +eval
        refused "*ACL failure in script*" {r rights.call C eval $write 0 4}
        refused $no_user {r rights.call "" eval {return server.call('rights.call', 'C', 'set', 'a', 5)} 0}
        assert_equal 3 [$admin get a]
    }

    test "a call that waits keeps its user" {
        assert_equal PROMISE [r rights.call KC blpop l 0]
        $admin acl setuser default -blpop
        $admin rpush l x
        assert_match "-NOPERM User default has no permissions to run the 'blpop' command*" [r rights.last]
        assert_equal PROMISE [r rights.call K blpop none 0]
        $admin rpush none y
        assert_match "*y*" [r rights.last]
        assert_equal PROMISE [r rights.call KC rights.later]
        r rights.now
        wait_for_condition 5000 {[r rights.last] ne ""}
        assert_match "-NOPERM User default has no permissions to run the 'set' command*" [r rights.last]
        assert_equal PROMISE [r rights.call K rights.later]
        r rights.now
        wait_for_condition 5000 {[r rights.last] ne ""}
        assert_match "-$no_user" [r rights.last]
        assert_equal {x} [$admin lrange l 0 -1]
        $admin acl setuser default +@all
    }

    test "a call that waits has no rights when its user is gone" -needs {ours 1} {
        r del l
        r rights.own "on ~* +@all"
        assert_equal PROMISE [r rights.as KC blpop l 0]
        r rights.free
        r rpush l x
        assert_match "-NOPERM *" [r rights.last]
        r acl setuser named on nopass ~* +@all
        assert_equal 1 [r rights.handle named]
        assert_equal PROMISE [r rights.of KC blpop none 0]
        r acl deluser named
        r rpush none x
        assert_match "-NOPERM *" [r rights.last]
        r del l none
    }

    test "a module may keep a user of the server that is removed: it has no rights" -needs {ours 1} {
        r acl setuser named on nopass ~* +@all
        r rights.handle named
        assert_equal {1 OK} [list [r rights.may handle get x] [r rights.of C set x y]]
        r acl deluser named
        assert_equal 0 [r rights.may handle get x]
        refused "NOPERM *" {r rights.of C get x}
        assert_match "off*-@all" [r rights.rules]
        r acl setuser named on nopass ~* +@all ;# another one
        assert_equal 0 [r rights.may handle get x]
        assert_equal 0 [r rights.handle]
        r acl deluser named
    }

    test "a script whose call removes its user runs no more commands" -needs {ours 1} {
        r acl setuser u on nopass ~* +@all
        set c [new_client]
        $c auth u x
        catch {$c eval {server.call('rights.call', '', 'acl', 'deluser', 'u') return server.call('set', 'late', 1)} 0}
        assert_equal 0 [r exists late]
    }

    test "rules of a module's own user concern the commands of modules that are loaded later" -needs {ours 1} {
        foreach {rules expected} {"+@all -@write" {0 1} "nocommands +@write" {1 0}} {
            r rights.own "on allkeys $rules"
            r module load [file join $::root build modules simple.so]
            assert_equal $expected [list [r rights.may own simple.set a b] [r rights.may own simple.echo x]]
            r module unload simple
        }
        r rights.free
    }
    $admin -close
}

start_cluster [list primaries 2 overrides [list loadmodule $rights] tags {modules}] {
    test "a call that waits for keys of a slot that leaves ends with an error" -needs {ours 1} {
        set slot [lindex [n 0 cluster slots] 0 0]
        set mine [slot_tag $slot]
        assert_equal PROMISE [n 0 rights.call K blpop $mine 0]
        foreach node {1 0} {n $node cluster setslot $slot node [n 1 cluster myid]}
        wait_for_condition 5000 {[n 0 rights.last] ne ""} "the call does not end"
        assert_match "-ERR Attempted to access a non local key in a cluster node*" [n 0 rights.last]
        assert_match "*blocked_clients:0\r*" [n 0 info clients]
    }
}
