# Modules: rights of users, the reply barrier, cluster mode and propagation concern their commands like all others.
# The module is tests/modules/gates.c.

set gates [file join $::root build modules gates.so]

proc as_user {name args} {
    set c [new_client]
    $c auth $name x
    set reply [$c -typed {*}$args]
    $c -close
    return $reply
}

start_server {
    overrides {enable-module-command yes enable-debug-command yes repl-diskless-sync-delay 0} tags {modules}
} {
    test "rules of users concern commands of modules that are loaded later" {
        r acl setuser all on nopass ~* +@all -@write
        r acl setuser none on nopass ~* -@all +@write +auth
        r acl setuser limited on nopass ~a* +@all
        r module load $gates
        # A command of a module is in the categories that the module declares, whatever its flags are.
        assert_equal +OK [as_user all gates.write k v]
        assert_equal +OK [as_user all gates.set k v]
        assert_match "-NOPERM User none has no permissions to run the 'gates.write' command*" \
            [as_user none gates.write k v]
        assert_match "-NOPERM No permissions to access a key*" [as_user limited gates.keys a v b]
        assert_equal :4 [as_user limited gates.keys a v a2]
    }

    test "a module whose command a rule of a user names is not unloaded" {
        r acl setuser all -gates.set
        assert_match "-NOPERM*" [as_user all gates.set k v]
        assert_error "ERR Error unloading module: one or more ACL users reference commands from this module.\
            Remove those ACL rules before unloading" {r module unload gates}
        assert_match "-NOPERM*" [as_user all gates.set k v]
        assert_equal :2 [as_user all gates.keys a]
        r acl deluser all
        r module unload gates
        r module load $gates
    }

    test "the reply of a command that writes, whatever it declares, waits until the write is released" -needs {ours 1} {
        set c [new_client]
        r debug reply-barrier hold
        $c -send gates.set k held
        wait_for_condition 5000 {[dict get [r debug reply-barrier status] clients] == 1}
        assert_equal "" [$c -available]
        r debug reply-barrier release
        assert_equal OK [$c -read]
        r debug reply-barrier off
    }

    test "what a module writes into INFO waits like the reply to a read" -needs {ours 1} {
        r module load [file join $::root build modules sections.so]
        foreach c {writer reader all} {set $c [new_client]}
        r debug reply-barrier hold
        $writer -send set k x
        wait_for_condition 5000 {[dict get [r debug reply-barrier status] clients] == 1}
        $reader -send info sections
        $all -send info cpu everything
        wait_for_condition 5000 {[dict get [r debug reply-barrier status] clients] == 3}
        assert_equal {{} {}} [list [$reader -available] [$all -available]]
        foreach names {{} server {cpu all}} {assert_match "# *" [r info {*}$names]}
        r debug reply-barrier release
        assert_match "# sections\r*" [$reader -read]
        assert_match "*# sections\r*" [$all -read]
        # A server that shows no data at all shows the rest of INFO.
        r debug reply-barrier deny
        assert_equal "" [r info sections]
        set shown [r info everything]
        assert_match "*# CPU\r*" $shown
        assert_not_match "*# sections\r*" $shown
        assert_equal OK [$writer -read]
        r debug reply-barrier off
        assert_match "# sections\r*" [r info sections]
        foreach c [list $writer $reader $all] {$c -close}
        r module unload sections
    }

    test "what a module says of a login waits like the reply to a write" -needs {ours 1} {
        r module load [file join $::root build modules rights.so] auth
        foreach c {writer reader login} {set $c [new_client]}
        r debug reply-barrier hold
        $writer -send set secret hidden
        wait_for_condition 5000 {[dict get [r debug reply-barrier status] clients] == 1}
        $reader -send auth reader x
        $login -send hello 3 auth writer x
        wait_for_condition 5000 {[dict get [r debug reply-barrier status] clients] == 3}
        assert_equal {{} {}} [list [$reader -available] [$login -available]]
        r debug reply-barrier release
        assert_error "DENIED the secret is hidden" {$reader -read}
        set refused "WRONGPASS invalid username-password pair or user is disabled."
        assert_error $refused {$login -read}
        assert_equal OK [$writer -read]
        r debug reply-barrier deny
        assert_error $refused {$reader auth reader x}
        r debug reply-barrier off
        assert_error "DENIED the secret is hidden" {$reader auth reader x}
        foreach c [list $writer $reader $login] {$c -close}
        r del secret logins
        r module unload rights
    }

    test "a client that a timer of a module wakes changes the replica, too" -needs {ours 1} {
        start_server [list overrides [list loadmodule $gates]] {
            r replicaof [srv -1 host] [srv -1 port]
            wait_for_condition 10000 {[info_field replication master_link_status] eq "up"}
            set c [new_client -level -1]
            $c -send blpop list 0
            wait_for_condition 5000 {[string match "*blocked_clients:1\r*" [r -1 info clients]]}
            r -1 gates.later list
            assert_equal {list a} [$c -read]
            r -1 set end 1
            wait_for_condition 5000 {[r get end] == 1}
            assert_equal {0 0} [list [r -1 exists list] [r exists list]]
        }
    }
}

set users [file join $::unit_dir users.acl]
write_file $users "user default on nopass ~* &* +@all\nuser late on nopass ~* -@all +gates.set +auth\n"
start_server [list overrides [list loadmodule $gates aclfile $users] tags {modules}] {
    test "users of a file may have rules that name commands of modules" -needs {ours 1} {
        assert_equal +OK [as_user late gates.set k v]
        assert_match "-NOPERM*" [as_user late gates.write k v]
    }
}

start_cluster [list primaries 2 overrides [list loadmodule $gates] tags {modules}] {
    test "all keys that a command of a module finds must be in one slot" -needs {ours 1} {
        set mine [slot_tag [lindex [n 0 cluster slots] 0 0]]
        assert_equal 2 [n 0 gates.keys $mine]
        assert_match "-CROSSSLOT*" [n 0 -typed gates.keys $mine v other$mine v {different}]
    }
}
