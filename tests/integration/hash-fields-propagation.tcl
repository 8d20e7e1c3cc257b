# Propagation of commands with fields that have expired but are not deleted yet. Replicas and the append-only file do
# not check expiry and find these fields. seconds: 2

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
