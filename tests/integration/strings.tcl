# The string commands.

start_server {tags {string}} {
    # --- SET, GET ------------------------------------------------------------

    test "SET and GET a value" {
        replies {
            {set k v} +OK
            {get k} {$v}
            {set k ""} +OK
            {get k} {$}
            {get none} {nil$}
            {SET k V} +OK
            {GeT k} {$V}
        }
    }

    test "keys and values may hold any byte" {
        set all ""
        for {set i 0} {$i < 256} {incr i} {append all [format %c $i]}
        r set $all $all
        assert_equal $all [r get $all]
        assert_typed :1 exists $all
        r set "" empty
        assert_typed {$empty} get ""
    }

    foreach {what size} {"1 byte" 1 "64 KiB" 65536 "1 MiB" 1048576 "17 MiB" 17825792} {
        test "SET and GET a value of $what" {
            set v [string repeat [randstring 64 64 alpha] [expr {$size / 64 + 1}]]
            set v [string range $v 0 $size-1]
            r set big $v
            assert_equal $size [r strlen big]
            assert {[r get big] eq $v}
            r del big
        }
    }

    test "SET discards the expiry unless KEEPTTL is given" {
        r set k v ex 100
        r set k w
        assert_typed :-1 ttl k
        r set k v ex 100
        r set k w keepttl
        assert_range [r ttl k] 95 100
        assert_equal w [r get k]
        r set fresh w keepttl
        assert_typed :-1 ttl fresh
    }

    test "SET replaces a value of any type" {
        other_type k
        assert_typed +OK set k v
        assert_equal string [r type k]
    }

    test "SET EX, PX, EXAT and PXAT set the expiry" {
        r set k v ex 100
        assert_range [r pttl k] 95000 100000
        r set k v px 100000
        assert_range [r pttl k] 95000 100000
        set at [expr {[clock seconds] + 100}]
        r set k v exat $at
        assert_equal $at [r expiretime k]
        assert_equal ${at}000 [r pexpiretime k]
        r set k v pxat ${at}123
        assert_equal ${at}123 [r pexpiretime k]
        r set k v EX 100
        assert_range [r ttl k] 95 100
    }

    test "SET with a time in the past deletes the key" {
        r set k v
        replies {
            {set k v exat 1} +OK
            {exists k} :0
            {set k v pxat 1} +OK
            {get k} {nil$}
        }
    }

    test "SET refuses bad expire times" {
        r set k old
        foreach option {ex px exat pxat} {
            foreach bad {0 -1 -9223372036854775808} {
                assert_typed "-ERR invalid expire time in 'set' command" set k v $option $bad
            }
            foreach bad {abc 1.5 "" " 1" "1 " 9223372036854775808 -} {
                assert_typed "-ERR value is not an integer or out of range" set k v $option $bad
            }
        }
        replies {
            {set k v ex 9223372036854775807} "-ERR invalid expire time in 'set' command"
            {set k v px 9223372036854775807} "-ERR invalid expire time in 'set' command"
            {set k v exat 9223372036854775807} "-ERR invalid expire time in 'set' command"
            {set k v exat 9223372036854776} "-ERR invalid expire time in 'set' command"
            {get k} {$old}
            {ttl k} :-1
            {set k v exat 9223372036854775} +OK
            {set k v pxat 9223372036854775807} +OK
            {pexpiretime k} :9223372036854775807
        }
    }

    test "SET refuses options that exclude each other" {
        r del k
        foreach options {
            {nx xx} {xx nx} {ex 10 px 10} {ex 10 exat 10} {ex 10 keepttl} {keepttl ex 10} {pxat 10 exat 10}
            {keepttl px 10} {foo} {ex} {px} {exat} {pxat} {nx foo} {get foo} {ex 10 foo} {persist} {xx nx get}\
                {ex 10 persist}
        } {
            assert_syntax_error set k v {*}$options
        }
        assert_typed :0 exists k
    }

    test "SET takes its options in any order and letter case" {
        r del k
        replies {
            {set k 1 EX 100 NX} +OK
            {set k 2 XX gEt kEePtTl} {$1}
            {set k 3 get px 100000 xx} {$2}
            {set k 4 nx ex 10 get} {$3}
            {get k} {$3}
            {set k 4 xx xx} +OK
            {set k 4 get get} {$4}
        }
        assert_range [r ttl k] -1 -1
    }

    test "SET NX sets only a missing key" {
        r del k
        replies {
            {set k 1 nx} +OK
            {set k 2 nx} {nil$}
            {get k} {$1}
        }
    }

    test "SET XX sets only an existing key" {
        r del k
        replies {
            {set k 1 xx} {nil$}
            {exists k} :0
            {set k 1} +OK
            {set k 2 xx} +OK
            {get k} {$2}
        }
    }

    test "SET NX that does not set leaves the expiry alone" {
        r set k v ex 100
        replies {
            {set k w nx ex 5} {nil$}
            {get k} {$v}
        }
        assert_range [r ttl k] 90 100
    }

    test "SET GET returns the value before" {
        r del k
        replies {
            {set k 1 get} {nil$}
            {set k 2 get} {$1}
            {set k 3 get ex 100} {$2}
            {get k} {$3}
        }
        assert_range [r ttl k] 90 100
    }

    test "SET GET with NX and XX" {
        r del k
        replies {
            {set k 1 xx get} {nil$}
            {exists k} :0
            {set k 1 nx get} {nil$}
            {get k} {$1}
            {set k 2 nx get} {$1}
            {get k} {$1}
            {set k 2 xx get} {$1}
            {get k} {$2}
        }
    }

    test "SET GET refuses a value that is no string and keeps it" -needs {command lpush} {
        r del l
        other_type l
        wrong_types {{set l x get} {set l x nx get} {set l x xx get} {set l x get ex 10}}
        replies {
            {type l} +list
            {set l x nx} {nil$}
            {ttl l} :-1
            {set l x xx} +OK
            {type l} +string
        }
    }

    test "SET and GET over RESP3" {
        r del k
        set c [new_client -resp 3]
        replies {
            {get k} _
            {set k v xx} _
            {set k v} +OK
            {set k v nx} _
            {set k w get} {$v}
            {get k} {$w}
        } $c
    }

    test "SET IFEQ sets only where the value is equal" -needs {version 8.1} {
        r set k one
        replies {
            {set k two ifeq nope} {nil$}
            {get k} {$one}
            {set k two ifeq one} +OK
            {get k} {$two}
            {set k three IFEQ two GET} {$two}
            {set k four ifeq two get} {$three}
            {get k} {$three}
            {set none v ifeq x} {nil$}
            {set none v ifeq ""} {nil$}
            {exists none} :0
            {set none v ifeq x get} {nil$}
        }
    }

    test "SET IFEQ compares numbers as strings" -needs {version 8.1} {
        replies {
            {set k 100} +OK
            {set k x ifeq 0100} {nil$}
            {set k x ifeq 100} +OK
            {set k ""} +OK
            {set k x ifeq ""} +OK
            {get k} {$x}
        }
    }

    test "SET IFEQ goes together with the expiry options" -needs {version 8.1} {
        r set k one
        assert_typed +OK set k two ifeq one ex 100
        assert_range [r ttl k] 95 100
        assert_typed +OK set k three ifeq two keepttl
        assert_range [r ttl k] 95 100
        assert_typed +OK set k four px 200000 ifeq three
        assert_range [r ttl k] 195 200
        assert_typed {nil$} set k five ifeq zzz ex 1
        assert_range [r ttl k] 195 200
    }

    test "SET IFEQ excludes NX and XX and needs its argument" -needs {version 8.1} {
        r set k one
        foreach options {{ifeq one nx} {ifeq one xx} {nx ifeq one} {xx ifeq one} {ifeq}} {
            assert_syntax_error set k two {*}$options
        }
        assert_equal one [r get k]
    }

    test "SET IFEQ refuses a value that is no string" -needs {version 8.1 command lpush} {
        r del l
        other_type l
        wrong_types {{set l x ifeq a} {set l x ifeq a get}}
    }

    test "DELIFEQ deletes only where the value is equal" -needs {version 9.0} {
        r set k v
        replies {
            {delifeq k w} :0
            {exists k} :1
            {delifeq k v} :1
            {exists k} :0
            {delifeq k v} :0
            {set k 12} +OK
            {delifeq k 012} :0
            {delifeq k 12} :1
        }
        other_type l2
        wrong_types {{delifeq l2 a}}
        arity_errors {delifeq {delifeq k} {delifeq k v w}}
    }

    # --- MSETEX --------------------------------------------------------------

    test "MSETEX sets all keys" -needs {version 9.1} {
        r flushall
        replies {
            {msetex 2 a 1 b 2} :1
            {mget a b} {* $1 $2}
            {ttl a} :-1
            {msetex 1 a 3} :1
            {get a} {$3}
        }
    }

    test "MSETEX sets expiry times" -needs {version 9.1} {
        r flushall
        assert_typed :1 msetex 2 a 1 b 2 ex 100
        assert_range [r ttl a] 95 100
        assert_range [r ttl b] 95 100
        assert_typed :1 msetex 2 a 1 b 2 PX 200000
        assert_range [r ttl b] 195 200
        assert_typed :1 msetex 2 a 1 c 2 keepttl
        assert_range [r ttl a] 195 200
        assert_typed :-1 ttl c
        set at [expr {[clock seconds] + 500}]
        assert_typed :1 msetex 1 a 1 exat $at
        assert_equal $at [r expiretime a]
        assert_typed :1 msetex 1 a 1 pxat ${at}007
        assert_equal ${at}007 [r pexpiretime a]
        assert_typed :1 msetex 1 a 1
        assert_typed :-1 ttl a
        assert_typed :1 msetex 1 a 1 pxat 1
        assert_typed :0 exists a
    }

    test "MSETEX NX requires all keys to be missing, XX all to exist" -needs {version 9.1} {
        r flushall
        r set b old
        replies {
            {msetex 2 a 1 b 2 nx} :0
            {exists a} :0
            {get b} {$old}
            {msetex 2 a 1 b 2 xx} :0
            {exists a} :0
            {get b} {$old}
            {msetex 2 c 1 d 2 NX} :1
            {msetex 2 c 3 d 4 XX} :1
            {mget c d} {* $3 $4}
            {msetex 2 e 1 f 2 ex 100 nx} :1
            {msetex 2 e 1 f 2 nx ex 100} :0
        }
    }

    test "MSETEX replaces values of any type and a key named twice gets the last value" -needs {version 9.1} {
        r flushall
        other_type l
        replies {
            {msetex 3 l v a 1 a 2} :1
            {type l} +string
            {get a} {$2}
        }
    }

    test "MSETEX refuses bad arguments and sets nothing" -needs {version 9.1} {
        r flushall
        foreach bad {
            {0 a 1} {-1 a 1} {x a 1} {2 a 1} {2 a 1 b} {1 a 1 b 2} {1 a 1 nx xx} {1 a 1 ex} {1 a 1 ex 0} {1 a 1 ex x}
            {1 a 1 ex 10 px 10} {1 a 1 ex 10 keepttl} {1 a 1 foo} {9223372036854775807 a 1} {1 a 1 ex -5}
        } {
            assert_match "-ERR *" [r -typed msetex {*}$bad] "msetex $bad"
        }
        assert_typed :0 dbsize
        arity_errors {msetex {msetex 1} {msetex 1 a}}
    }

    # --- GETDEL, GETEX, GETSET -------------------------------------------------

    test "GETDEL returns the value and deletes the key" {
        r set k v
        replies {
            {getdel k} {$v}
            {exists k} :0
            {getdel k} {nil$}
        }
        other_type l3
        wrong_types {{getdel l3}}
    }

    test "GETEX without options is GET" {
        r set k v ex 100
        assert_typed {$v} getex k
        assert_range [r ttl k] 95 100
        assert_typed {nil$} getex none
        assert_typed {nil$} getex none ex 10
        assert_typed :0 exists none
    }

    test "GETEX sets and removes the expiry" {
        r set k v
        r getex k ex 100
        assert_range [r ttl k] 95 100
        r getex k px 200000
        assert_range [r ttl k] 195 200
        set at [expr {[clock seconds] + 300}]
        r getex k exat $at
        assert_equal $at [r expiretime k]
        r getex k pxat ${at}001
        assert_equal ${at}001 [r pexpiretime k]
        assert_typed {$v} getex k PERSIST
        assert_typed :-1 ttl k
        assert_typed {$v} getex k persist
    }

    test "GETEX with a time in the past returns the value and deletes the key" {
        r set k v
        assert_typed {$v} getex k exat 1
        assert_typed :0 exists k
        r set k v
        assert_typed {$v} getex k pxat 1
        assert_typed :0 exists k
    }

    test "GETEX refuses bad options" {
        r set k v
        foreach options {{foo} {ex} {persist ex 10} {ex 10 persist} {keepttl} {ex 10 px 10} {nx} {xx} {get} {exat}} {
            assert_syntax_error getex k {*}$options
        }
        foreach option {ex px exat pxat} {
            assert_typed "-ERR invalid expire time in 'getex' command" getex k $option 0
            assert_typed "-ERR invalid expire time in 'getex' command" getex k $option -1
            assert_typed "-ERR value is not an integer or out of range" getex k $option x
        }
        replies {
            {getex k ex 9223372036854776} "-ERR invalid expire time in 'getex' command"
            {getex k px 9223372036854775807} "-ERR invalid expire time in 'getex' command"
            {get k} {$v}
            {ttl k} :-1
        }
        other_type l4
        wrong_types {{getex l4} {getex l4 ex 10}}
    }

    test "GETSET returns the value before and drops the expiry" {
        r del k
        replies {
            {getset k a} {nil$}
            {getset k b} {$a}
            {get k} {$b}
        }
        r set k v ex 100
        r getset k w
        assert_typed :-1 ttl k
        other_type l5
        wrong_types {{getset l5 x}}
    }

    # --- SETNX, SETEX, PSETEX, MSET, MSETNX, MGET --------------------------------

    test "SETNX sets only a missing key" {
        r del k
        replies {
            {setnx k a} :1
            {setnx k b} :0
            {get k} {$a}
        }
        other_type l6
        assert_typed :0 setnx l6 x
    }

    test "SETEX and PSETEX set a value with an expiry" {
        r setex k 100 v
        assert_range [r ttl k] 95 100
        r psetex k 200000 w
        assert_range [r ttl k] 195 200
        assert_equal w [r get k]
    }

    test "SETEX and PSETEX refuse bad times" {
        r set k old
        foreach cmd {setex psetex} {
            foreach bad {0 -1 9223372036854775807} {
                assert_typed "-ERR invalid expire time in '$cmd' command" $cmd k $bad v
            }
            foreach bad {x 1.5 ""} {assert_typed "-ERR value is not an integer or out of range" $cmd k $bad v}
        }
        assert_equal old [r get k]
    }

    test "MSET sets all, drops expiries, and the last of a repeated key wins" {
        r set a v ex 100
        replies {
            {mset a 1 b 2 c 3} +OK
            {mget a b c} {* $1 $2 $3}
            {ttl a} :-1
            {mset z 1 z 2} +OK
            {get z} {$2}
        }
    }

    test "MSETNX sets all or nothing" {
        r del a b c
        replies {
            {msetnx a 1 b 2} :1
            {msetnx b 3 c 4} :0
            {exists c} :0
            {get b} {$2}
            {msetnx d1 1 d1 2} :1
            {get d1} {$2}
        }
    }

    test "MGET gives nil for what is missing or no string" {
        r flushall
        r set a 1
        other_type l
        replies {
            {mget a none l a} {* $1 nil$ nil$ $1}
            {mget none} {* nil$}
        }
        assert_reply [new_client -resp 3] {* $1 _ _} mget a none l
    }

    test "MSET and MGET of many keys" {
        set kv {}
        set k {}
        set want {}
        for {set i 0} {$i < 2000} {incr i} {lappend kv key:$i val:$i; lappend k key:$i; lappend want val:$i}
        assert_equal OK [r mset {*}$kv]
        assert_equal $want [r mget {*}$k]
    }

    # --- APPEND, STRLEN, ranges ----------------------------------------------------

    test "APPEND makes or lengthens a value" {
        r del k
        replies {
            {append k foo} :3
            {append k 100} :6
            {get k} {$foo100}
            {append k ""} :6
            {append empty ""} :0
            {exists empty} :1
            {set n 12} +OK
            {append n 3} :3
            {incr n} :124
        }
        r set k v ex 100
        r append k w
        assert_range [r ttl k] 95 100
        other_type l7
        wrong_types {{append l7 x}}
    }

    test "APPEND of growing pieces" {
        r del k
        set want ""
        for {set i 0} {$i < 500} {incr i} {
            set piece [randstring 0 200 binary]
            append want $piece
            assert_equal [string length $want] [r append k $piece]
        }
        assert_equal $want [r get k]
    }

    test "STRLEN of strings, numbers and nothing" {
        r mset k hello n -12345
        replies {
            {strlen k} :5
            {strlen n} :6
            {strlen none} :0
        }
        other_type l8
        wrong_types {{strlen l8}}
    }

    test "GETRANGE and SUBSTR take inclusive bounds, negative ones from the end" {
        r mset k "This is a string" n 12345
        foreach cmd {getrange substr} {
            foreach {from to want} {
                0 3 This   -3 -1 ing   0 -1 {This is a string}   10 100 string   5 2 {}   -100 3 This   -1 -100 {}
                0 0 T   15 15 g   16 20 {}   -1 -1 g   3 -14 {}   9223372036854775807 -1 {}
                -9223372036854775808 1 Th   0 9223372036854775807 {This is a string}   0 -9223372036854775808 T
            } {
                assert_typed "\$$want" $cmd k $from $to
            }
            assert_typed {$} $cmd none 0 -1
            assert_typed {$234} $cmd n 1 3
            assert_typed "-ERR value is not an integer or out of range" $cmd k a 1
            assert_typed "-ERR value is not an integer or out of range" $cmd k 1 a
            assert_typed "-ERR value is not an integer or out of range" $cmd k 1 9223372036854775808
        }
        other_type l9
        wrong_types {{getrange l9 0 1} {substr l9 0 1}}
    }

    test "GETRANGE agrees with Tcl on random ranges" {
        set v [randstring 100 100 alpha]
        r set k $v
        for {set i 0} {$i < 300} {incr i} {
            set a [expr {[randint 140] - 20}]
            set b [expr {[randint 140] - 20}]
            set from [expr {$a < 0 ? max(0, 100 + $a) : $a}]
            set to [expr {$b < 0 ? 100 + $b : $b}]
            if {$a >= 0 || $b >= 0 || $a <= $b} {
                assert_equal [string range $v $from $to] [r getrange k $a $b] "$a $b"
            }
        }
    }

    test "SETRANGE overwrites, lengthens and pads with zero bytes" {
        r del k none
        replies {
            {setrange k 3 abc} :6
            {get k} "$\x00\x00\x00abc"
            {setrange k 1 XY} :6
            {get k} "$\x00XYabc"
            {setrange k 4 12345} :9
            {get k} "$\x00XYa12345"
            {setrange k 2 ""} :9
            {setrange none 0 ""} :0
            {setrange none 5 ""} :0
            {exists none} :0
            {set n 12345} +OK
            {setrange n 1 9} :5
            {get n} {$19345}
        }
        r set k v ex 100
        r setrange k 1 w
        assert_range [r ttl k] 95 100
    }

    test "SETRANGE refuses bad offsets and types" {
        r set k v
        other_type l10
        replies {
            {setrange k -1 x} "-ERR offset is out of range"
            {setrange none -1 ""} "-ERR offset is out of range"
            {setrange k x x} "-ERR value is not an integer or out of range"
            {setrange k 536870912 x} "-ERR string exceeds maximum allowed size (proto-max-bulk-len)"
            {setrange none 536870912 x} "-ERR string exceeds maximum allowed size (proto-max-bulk-len)"
            {setrange none 9223372036854775807 x} "-ERR string exceeds maximum allowed size (proto-max-bulk-len)"
            {setrange k 4611686018427387904 x} "-ERR string exceeds maximum allowed size (proto-max-bulk-len)"
            {exists none} :0
            {get k} {$v}
        }
        wrong_types {{setrange l10 0 x} {setrange l10 0 ""}}
    }

    test "proto-max-bulk-len limits APPEND and SETRANGE" {
        with_config {proto-max-bulk-len 2097152} {
            r set k [string repeat x 2097000]
            assert_typed "-ERR string exceeds maximum allowed size (proto-max-bulk-len)" append k [string repeat y 200]
            assert_typed :2097152 append k [string repeat y 152]
            assert_typed "-ERR string exceeds maximum allowed size (proto-max-bulk-len)" setrange k 2097152 z
            assert_typed :2097152 setrange k 2097151 z
        }
        r del k
    }

    # --- Counters ----------------------------------------------------------------------

    test "INCR, DECR, INCRBY and DECRBY count" {
        r del n
        replies {
            {incr n} :1
            {incr n} :2
            {incrby n 40} :42
            {decr n} :41
            {decrby n 50} :-9
            {incrby n -1} :-10
            {decrby n -10} :0
            {get n} {$0}
            {incrby n 17179869184} :17179869184
            {decrby n 17179869185} :-1
            {incrby fresh 7} :7
            {decrby fresh2 7} :-7
            {decr fresh3} :-1
        }
        assert_encoding int n
    }

    test "counters keep the expiry" {
        foreach cmd {incr decr {incrby N 5} {decrby N 5} {incrbyfloat N 1.5}} {
            r set n 10 ex 100
            if {[llength $cmd] == 1} {r $cmd n} else {r {*}[lreplace $cmd 1 1 n]}
            assert_range [r ttl n] 95 100 $cmd
        }
    }

    test "counters stop at the limits of 64 bits" {
        replies {
            {set n 9223372036854775807} +OK
            {incr n} "-ERR increment or decrement would overflow"
            {incrby n 1} "-ERR increment or decrement would overflow"
            {incrby n 9223372036854775807} "-ERR increment or decrement would overflow"
            {decrby n -1} "-ERR increment or decrement would overflow"
            {get n} {$9223372036854775807}
            {decr n} :9223372036854775806
            {set n -9223372036854775808} +OK
            {decr n} "-ERR increment or decrement would overflow"
            {decrby n 1} "-ERR increment or decrement would overflow"
            {incrby n -1} "-ERR increment or decrement would overflow"
            {incr n} :-9223372036854775807
            {decrby n -9223372036854775808} "-ERR decrement would overflow"
            {incrby n 9223372036854775807} :0
        }
    }

    test "counters refuse what is no integer" {
        foreach v {"" " " " 1" "1 " "+1" "-0" "01" "1.0" "abc" "1a" "0x10" "9223372036854775808" "-9223372036854775809"
            "123456789012345678901234567890"} {
            r set n $v
            foreach cmd {{incr n} {decr n} {incrby n 1} {decrby n 1}} {
                assert_typed "-ERR value is not an integer or out of range" {*}$cmd
            }
            assert_equal $v [r get n]
        }
        r set n 1
        foreach v {"" "+5" " 5" "5 " "5.0" "abc" "9223372036854775808" "-9223372036854775809"} {
            assert_typed "-ERR value is not an integer or out of range" incrby n $v
            assert_typed "-ERR value is not an integer or out of range" decrby n $v
        }
        assert_equal 1 [r get n]
        other_type l11
        wrong_types {{incr l11} {decr l11} {incrby l11 1} {decrby l11 1} {incrbyfloat l11 1}}
    }

    test "INCRBYFLOAT counts without exponents and trailing zeros" {
        r del f
        replies {
            {incrbyfloat f 1.5} {$1.5}
            {incrbyfloat f 1.5} {$3}
            {incrbyfloat f -3} {$0}
            {incrbyfloat f 1e3} {$1000}
            {incrbyfloat f 0.001} {$1000.001}
            {get f} {$1000.001}
            {set f 5.0e3} +OK
            {incrbyfloat f 2.0e2} {$5200}
            {set f 3.0} +OK
            {incrbyfloat f 1.1} {$4.1}
            {incrbyfloat f 0x10} {$20.1}
            {set f 1e5} +OK
            {incrbyfloat f 0} {$100000}
            {incr f} :100001
            {set f 0.1} +OK
            {incrbyfloat f 0.2} {$0.3}
            {set f -0.5} +OK
            {incrbyfloat f 0.5} {$0}
            {set f 1} +OK
            {incrbyfloat f 1e-17} {$1.00000000000000001}
            {set f 17179869184} +OK
            {incrbyfloat f 1.5} {$17179869185.5}
            {set f 1} +OK
            {incrbyfloat f -1.1} {$-0.1}
        }
        assert_reply [new_client -resp 3] {$0.9} incrbyfloat f 1
    }

    test "INCRBYFLOAT refuses what is no number" {
        foreach v {"" " 1" "1 " "abc" "1a" "nan" "1.5.5" "--1" "1e"} {
            r set f $v
            assert_typed "-ERR value is not a valid float" incrbyfloat f 1
            r set f 1
            assert_typed "-ERR value is not a valid float" incrbyfloat f $v
        }
        r set f 1
        foreach v {inf -inf +inf infinity} {
            assert_typed "-ERR increment would produce NaN or Infinity" incrbyfloat f $v
        }
        assert_equal 1 [r get f]
    }

    # --- LCS ----------------------------------------------------------------------------

    test "LCS finds the longest common subsequence" {
        r mset {a} ohmytext {b} mynewtext
        replies {
            {lcs a b} {$mytext}
            {lcs a b len} :6
            {lcs a b LEN} :6
            {lcs a none} {$}
            {lcs none none2} {$}
            {lcs none none2 len} :0
        }
    }

    test "LCS IDX gives the matching ranges" {
        replies {
            {lcs a b idx} {* $matches {* {* {* :4 :7} {* :5 :8}} {* {* :2 :3} {* :0 :1}}} $len :6}
            {lcs a b idx minmatchlen 4} {* $matches {* {* {* :4 :7} {* :5 :8}}} $len :6}
            {lcs a b minmatchlen 4 idx withmatchlen} {* $matches {* {* {* :4 :7} {* :5 :8} :4}} $len :6}
            {lcs a b idx withmatchlen} {* $matches {* {* {* :4 :7} {* :5 :8} :4} {* {* :2 :3} {* :0 :1} :2}} $len :6}
            {lcs a b idx minmatchlen 100} {* $matches * $len :6}
            {lcs a b idx minmatchlen -5} {* $matches {* {* {* :4 :7} {* :5 :8}} {* {* :2 :3} {* :0 :1}}} $len :6}
            {lcs none none2 idx} {* $matches * $len :0}
        }
        set c [new_client -resp 3]
        replies {
            {lcs a b idx minmatchlen 4} {% $matches {* {* {* :4 :7} {* :5 :8}}} $len :6}
            {lcs a b len} :6
            {lcs none none2 idx} {% $matches * $len :0}
        } $c
    }

    test "LCS refuses bad options and types" {
        replies {
            {lcs a b len idx} "-ERR If you want both the length and indexes, please just use IDX."
            {lcs a b foo} "-ERR syntax error"
            {lcs a b minmatchlen} "-ERR syntax error"
            {lcs a b idx minmatchlen x} "-ERR value is not an integer or out of range"
        }
        other_type l12
        replies {
            {lcs a l12} "-ERR The specified keys must contain string values"
            {lcs l12 a len} "-ERR The specified keys must contain string values"
        }
    }

    test "LCS of random strings is as long as a plain computation says" {
        for {set round 0} {$round < 5} {incr round} {
            set a [randstring 0 60 compr]
            set b [randstring 0 60 compr]
            set row [lrepeat [expr {[string length $b] + 1}] 0]
            foreach x [split $a ""] {
                set next 0
                set j 0
                foreach y [split $b ""] {
                    if {$x eq $y} {
                        lappend next [expr {[lindex $row $j] + 1}]
                    } else {
                        lappend next [expr {max([lindex $row $j+1], [lindex $next $j])}]
                    }
                    incr j
                }
                set row $next
            }
            r mset a $a b $b
            assert_equal [lindex $row end] [r lcs a b len] "$a $b"
            assert_equal [lindex $row end] [string length [r lcs a b]]
        }
    }

    # --- Common rules --------------------------------------------------------------------

    test "OBJECT ENCODING of strings: int, embstr, raw" {
        foreach {value encoding} {
            0 int  12345 int  -12345 int  9223372036854775807 int  -9223372036854775808 int  9223372036854775808 embstr
            0123 embstr  -0 embstr  1.5 embstr  " 1" embstr  {} embstr  a embstr
        } {
            r set k $value
            assert_equal $encoding [r object encoding k] $value
        }
        foreach {key ttl longest} {k {} 112 k {ex 100} 104 kkkkkkkkkk {} 103 kkkkkkkkkk {ex 100} 95} {
            r set $key [string repeat x $longest] {*}$ttl
            assert_encoding embstr $key
            r set $key [string repeat x [expr {$longest + 1}]] {*}$ttl
            assert_encoding raw $key
            r del $key
        }
        r set k [string repeat x 105]
        assert_encoding embstr k
        r expire k 100
        assert_encoding raw k
        r persist k
        assert_encoding raw k
        r set k 1
        r append k 2
        assert_encoding raw k
        assert_equal 13 [r incr k]
        assert_encoding int k
        r set k abc
        r setrange k 1 x
        assert_encoding raw k
    }

    test "an expired string is gone for every string command" {
        r debug set-active-expire 0
        foreach {cmd want} {
            {get k} {nil$}  {getdel k} {nil$}  {getex k} {nil$}  {strlen k} :0  {getrange k 0 -1} {$}  {append k x} :1
            {setnx k 1} :1  {incr k} :1  {incrbyfloat k 1.5} {$1.5}  {getset k x} {nil$}  {setrange k 1 x}\
                :2  {set k v nx} +OK
            {set k v get} {nil$}  {set k v xx} {nil$}  {mget k} {* nil$}
        } {
            r set k 5 px 1
            let_pass 1
            assert_typed $want {*}$cmd
        }
        r debug set-active-expire 1
    }

    test "random SET, APPEND, SETRANGE and GETRANGE agree with a model" -timeout 120 {
        r flushall
        array unset model
        for {set i 0} {$i < 3000} {incr i} {
            set k k[randint 20]
            switch [randint 5] {
                0 {
                    set v [randstring 0 100 binary]
                    r set $k $v
                    set model($k) $v
                }
                1 {
                    set v [randstring 1 50 binary]
                    r append $k $v
                    append model($k) $v
                }
                2 {
                    set at [randint 120]
                    set v [randstring 1 20 binary]
                    r setrange $k $at $v
                    if {![info exists model($k)]} {set model($k) ""}
                    set have [string length $model($k)]
                    if {$have < $at} {append model($k) [string repeat \0 [expr {$at - $have}]]}
                    set model($k) [string range $model($k) 0 $at-1]$v[string range $model($k) \
                        [expr {$at + [string length $v]}] end]
                }
                3 {
                    set want ""
                    if {[info exists model($k)]} {set want $model($k)} ;# expr would make a number of "\f6"
                    assert_equal [string range $want 3 30] [r getrange $k 3 30]
                    assert_equal [string length $want] [r strlen $k]
                }
                4 {
                    r del $k
                    unset -nocomplain model($k)
                }
            }
        }
        foreach k [array names model] {assert_equal $model($k) [r get $k]}
        assert_equal [array size model] [r dbsize]
    }

    test "SET with IFEQ is propagated with its comparison, unless its time is made absolute" -needs {version 8.1} {
        set follower [new_follower]
        r set k v
        heard $follower
        r set k v ifeq v
        r set k v ifeq v get
        r set k v ifeq v pxat 33177117420000
        r set k v ifeq v exat 33177117420
        assert_equal {{set k v ifeq v} {set k v ifeq v} {set k v ifeq v pxat 33177117420000}\
            {SET k v PXAT 33177117420000}} [heard $follower]
    }
}
