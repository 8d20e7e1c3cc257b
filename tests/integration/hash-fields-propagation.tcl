# Propagation of commands with keys and fields that have expired but are not deleted yet. Replicas and the append-only
# file do not check expiry and find these keys and fields. seconds: 2

# A hash with `a` and `b` without expiry, `t` with an expiry, and the given fields, which have expired.
proc make_hash {fields} {
    r del h
    r hset h a 1 b 2
    r hsetex h px 1000000 fields 1 t 3
    r hsetex h px 1 fields [llength $fields] {*}[concat {*}[lmap f $fields {list $f v}]]
    wait_for_condition 2000 {[r hget h [lindex $fields end]] eq ""}
}

start_server {tags {hash hash-fields replication} overrides {appendonly yes save "" repl-diskless-sync-delay 0}} {
    if {[unmet_need {command hgetdel}] ne ""} return
    set replica [lindex [replica_full_sync] 0]
    set far 99999999999123

    # {command, its arguments, its reply, the propagated commands}
    set cases [subst {
        {{hdel h a x} :1 {HDEL h a}}
        {{hdel h x a none y x t} :2 {HDEL h a none t}}
        {{hdel h x y a b t} :3 {HDEL h a b t}}
        {{hdel h a none} :1 {hdel h a none}}
        {{hdel h x} :0 {}}
        {{hgetdel h fields 2 x a} {* nil$ \$1} {HGETDEL h fields 1 a}}
        {{hgetdel h fields 4 a b t x} {* \$1 \$2 \$3 nil$} {HGETDEL h fields 3 a b t}}
        {{hpersist h fields 3 x t a} {* :-2 :1 :-1} {HPERSIST h fields 2 t a}}
        {{hpexpireat h $far fields 3 a x b} {* :1 :-2 :1} {HPEXPIREAT h $far fields 2 a b}}
        {{hpexpireat h $far nx fields 3 t x b} {* :0 :-2 :1} {HPEXPIREAT h $far nx fields 2 t b}}
        {{hexpireat h 99999999999 fields 2 x b} {* :-2 :1} {HPEXPIREAT h 99999999999000 fields 1 b}}
        {{hexpire h 0 fields 3 x b t} {* :-2 :2 :2} {HDEL h b t}}
        {{hgetex h persist fields 2 x t} {* nil$ \$3} {HPERSIST h FIELDS 1 t}}
        {{eval {return redis.call('hdel', 'h', 'a', 'b', 't', 'x')} 0} :3 {HDEL h a b t}}
    }]

    test "expired fields that a command leaves alone are not propagated with it" -needs {ours 1} {
        with_debug_active_expire_off {
            foreach case $cases {
                lassign $case words reply wanted
                make_hash {x y}
                replica_commands $replica
                assert_typed $reply {*}$words
                set got [replica_commands $replica]
                assert_equal [string tolower $wanted] [string tolower [join $got]] $words
            }
        }
    }

    test "the expiry of the last field is propagated with the deletion of the key" {
        r hset mixed stays v
        replica_commands $replica
        r hsetex mixed px 1 fields 1 f v
        wait_for_condition 5000 {[r hlen mixed] == 1}
        assert_equal {HDEL mixed f} [lindex [replica_commands $replica] end]
        r hsetex gone px 1 fields 1 f v
        wait_for_condition 5000 {[r exists gone] == 0}
        assert_equal {MULTI {HDEL gone f} {UNLINK gone} EXEC} [lrange [replica_commands $replica] end-3 end]
        r config set lazyfree-lazy-expire no
        r hsetex gone px 1 fields 1 f v
        wait_for_condition 5000 {[r exists gone] == 0}
        assert_equal {MULTI {HDEL gone f} {DEL gone} EXEC} [lrange [replica_commands $replica] end-3 end]
        r config set lazyfree-lazy-expire yes
    }

    # Valkey 9.1 propagates MSETEX and HSETEX with both, which replicas refuse.
    test "an expiry that is given twice is propagated once" -needs {ours 1} {
        r flushall ;# nothing expires meanwhile
        foreach {words wanted} {
            {msetex 1 k v EX 10 nx ex 20} {MSETEX 1 k v nx PXAT at}
            {msetex 2 ex 10 px 10 px 10000 PX 20000 PX 30000} {MSETEX 2 ex 10 px 10 PXAT at}
            {msetex 1 k v pxat 99999999999999 pxat 99999999999998}
            {MSETEX 1 k v pxat 99999999999999 pxat 99999999999998}
            {set k v ex 10 ex 20} {SET k v PXAT at}
            {getex k ex 10 ex 20} {PEXPIREAT k at}
            {hsetex h2 ex 10 ex 20 fields 1 f v} {HSETEX h2 PXAT at FIELDS 1 f v}
            {hgetex h2 ex 10 ex 20 fields 1 f} {HPEXPIREAT h2 at FIELDS 1 f}
        } {
            replica_commands $replica
            r {*}$words
            set got [regsub {\m1[0-9]{12}\M} [lindex [replica_commands $replica] 0] at]
            assert_equal [string tolower $wanted] [string tolower $got] $words
        }
    }

    # Valkey 9.1 propagates UNLINK k before MSETEX, whose condition replicas then find not met: they keep the value of
    # `other`.
    test "MSETEX XX that sets a key with a time in the past twice is propagated alone" -needs {ours 1} {
        with_debug_active_expire_off {
            foreach time {{pxat 1} {exat 1}} propagated {{PXAT 1} {PXAT 1000}} {
                r mset k 1 other 1
                replica_commands $replica
                assert_equal 1 [r msetex 3 k 2 k 3 other 2 {*}$time xx]
                assert_equal [string tolower "{msetex 3 k 2 k 3 other 2 $propagated xx}"] \
                    [string tolower [replica_commands $replica]]
                assert_equal {{} {}} [r mget k other]
            }
            assert_equal 0 [r msetex 2 k 1 k 2 ex 10 xx]
            assert_equal 1 [r msetex 2 k 1 k 2 pxat 1 nx]
        }
    }

    # Valkey 9.1 propagates the command alone, and replicas find the expired source.
    test "in import mode a command that writes deletes the expired keys that it reads" -needs {ours 1} {
        with_config {import-mode yes} {
            foreach {source words} {
                {sadd source a} {sunionstore to source s}
                {zadd source 1 a} {zunionstore to 2 source z}
                {set source a} {bitop or to source b}
                {pfadd source a} {pfmerge to source p}
                {set source 5} {sort s by sour* alpha store to}
            } {
                r del to source
                r sadd s ce
                r zadd z 1 b
                r set b b
                r pfadd p b
                r {*}$source
                r pexpire source 1
                wait_for_condition 2000 {![r exists source]}
                replica_commands $replica
                r {*}$words
                assert_equal [list MULTI {UNLINK source} $words EXEC] [replica_commands $replica]
            }
        }
    }

    test "in import mode a time in the past is propagated with its fields" -needs {ours 1} {
        with_config {import-mode yes} {
            foreach {words wanted} {
                {hpexpireat h 1 fields 3 x a b} {HPEXPIREAT h 1 FIELDS 2 a b}
                {hexpire h 0 nx fields 2 a t} {HPEXPIREAT h at FIELDS 1 a}
                {hexpireat h 1 fields 1 a} {HPEXPIREAT h 1000 FIELDS 1 a}
                {hgetex h exat 1 fields 1 a} {HPEXPIREAT h 1000 FIELDS 1 a}
            } {
                make_hash x
                replica_commands $replica
                r {*}$words
                assert_equal [list $wanted] [regsub {\m1[0-9]{12}\M} [replica_commands $replica] at] $words
            }
        }
    }

    test "a hash that keeps only expired fields is there after a restart from the append-only file" -needs {ours 1} {
        with_debug_active_expire_off {
            foreach command {{hdel h a b t x} {hgetdel h fields 4 x a b t}} {
                make_hash {x}
                r {*}$command
                assert_equal {1 1} [list [r exists h] [r hlen h]]
                r debug loadaof
                assert_equal {1 1} [list [r exists h] [r hlen h]]
                r rename h renamed
            }
        }
    }

    test "an expired field does not come back after a restart from the append-only file" -needs {ours 1} {
        with_debug_active_expire_off {
            foreach command {{hpersist h fields 2 t x} {hpexpire h 1000000 fields 2 a x}} {
                make_hash {x}
                r {*}$command
                r debug loadaof
                assert_equal {a b t} [lsort [r hkeys h]]
            }
        }
    }
}
