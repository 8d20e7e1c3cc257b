# SETBIT, GETBIT, BITCOUNT, BITPOS, BITOP, BITFIELD, BITFIELD_RO.
# seconds: 3

start_server {tags {bitmaps}} {
    test "SETBIT and GETBIT: the string grows, bit 0 is the highest of the first byte" {
        r flushall
        replies {
            {setbit a 7 1} :0
            {get a} "\$\x01"
            {object encoding a} {$raw}
            {setbit a 7 1} :1
            {setbit a 0 1} :0
            {get a} "\$\x81"
            {setbit a 20 0} :0
            {get a} "\$\x81\x00\x00"
            {getbit a 0} :1
            {getbit a 1} :0
            {getbit a 1000000} :0
            {getbit nosuch 3} :0
            {setbit new 0 0} :0
            {strlen new} :1
            {set n 12} +OK
            {getbit n 2} :1
            {setbit n 2 0} :1
            {get n} "\$\x112"
            {object encoding n} {$raw}
        }
    }

    test "SETBIT, GETBIT: offsets and bits out of range" {
        foreach offset {x -1 4294967296 9223372036854775808 1.5 "" #1} {
            assert_typed "-ERR bit offset is not an integer or out of range" setbit a $offset 1
            assert_typed "-ERR bit offset is not an integer or out of range" getbit a $offset
        }
        foreach bit {2 -1 x ""} {assert_typed "-ERR bit is not an integer or out of range" setbit a 1 $bit}
        arity_errors {{setbit a 1} {setbit a 1 1 1} {getbit a} {getbit a 1 2}}
        other_type other
        wrong_types {{setbit other 1 1} {getbit other 1} {bitcount other} {bitpos other 1} {bitop and d other}\
            {bitfield other get u8 0} {bitfield_ro other get u8 0}}
    }

    test "BITCOUNT of all, and of ranges of bytes and bits" {
        r flushall
        r set f foobar
        replies {
            {bitcount f} :26
            {bitcount f 1} :22
            {bitcount f 0 0} :4
            {bitcount f 1 1} :6
            {bitcount f 1 1 byte} :6
            {bitcount f 5 30 bit} :17
            {bitcount f -2 -1} :7
            {bitcount f 4 2} :0
            {bitcount f -1 -4} :0
            {bitcount f 0 1000} :26
            {bitcount f -100 -50} :4
            {bitcount nosuch} :0
            {bitcount f 1 2 foo} "-ERR syntax error"
            {bitcount f 1 2 bit x} "-ERR syntax error"
            {bitcount f x} "-ERR value is not an integer or out of range"
            {bitcount nosuch x y} "-ERR value is not an integer or out of range"
        }
        arity_errors {bitcount}
    }

    test "BITPOS of zeros and ones, with and without an end" {
        r flushall
        r set f "\xff\xf0\x00"
        r set ones "\xff\xff"
        replies {
            {bitpos f 0} :12
            {bitpos f 1} :0
            {bitpos f 1 2} :-1
            {bitpos f 1 1} :8
            {bitpos f 0 2} :16
            {bitpos f 0 0 -1 byte} :12
            {bitpos f 0 2 -1 BYTE} :16
            {bitpos f 1 7 15 bit} :7
            {bitpos f 0 7 9 bit} :-1
            {bitpos f 0 -8 -1 bit} :16
            {bitpos ones 0} :16
            {bitpos ones 0 1} :16
            {bitpos ones 0 0 -1} :-1
            {bitpos ones 0 5} :-1
            {bitpos ones 1 1 0} :-1
            {bitpos nosuch 0} :0
            {bitpos nosuch 1} :-1
            {bitpos f 2} "-ERR The bit argument must be 1 or 0."
            {bitpos f x} "-ERR value is not an integer or out of range"
            {bitpos f 1 x} "-ERR value is not an integer or out of range"
            {bitpos f 1 0 1 foo} "-ERR syntax error"
            {bitpos f 1 0 1 bit x} "-ERR syntax error"
        }
        arity_errors {bitpos {bitpos a}}
    }

    test "BITOP: shorter and missing strings count as zeros, an empty result deletes" {
        r flushall
        r set a "\xff\x0f\xaa"
        r set b "\x0f"
        replies {
            {bitop and d a b} :3
            {get d} "\$\x0f\x00\x00"
            {bitop or d a b nosuch} :3
            {get d} "\$\xff\x0f\xaa"
            {bitop xor d a b} :3
            {get d} "\$\xf0\x0f\xaa"
            {bitop not d a} :3
            {get d} "\$\x00\xf0\x55"
            {object encoding d} {$raw}
            {bitop and a a a} :3
            {bitop xor d nosuch nosuch2} :0
            {exists d} :0
            {bitop not d a b} "-ERR BITOP NOT must be called with a single source key."
            {bitop foo d a} "-ERR syntax error"
        }
        r expire a 100
        r bitop or a a b
        assert_equal -1 [r ttl a]
        arity_errors {{bitop and d}}
    }

    test "BITFIELD reads, writes and counts, and says what was there" {
        r flushall
        replies {
            {bitfield b set u8 0 255 get u8 0 incrby u8 0 10} {* :0 :255 :9}
            {bitfield b set i5 #2 -3 get i5 #2 get u5 #2} {* :0 :-3 :29}
            {bitfield b get u63 0 get i64 0} {* :332421947495284736 :664843894990569472}
            {bitfield b} *
            {bitfield nosuch get u8 0 get i64 100} {* :0 :0}
            {exists nosuch} :0
            {bitfield w set u8 100 0} {* :0}
            {strlen w} :14
            {bitfield_ro b get u8 0} {* :9}
            {bitfield_ro b set u8 0 1} "-ERR BITFIELD_RO only supports the GET subcommand"
            {bitfield_ro nosuch get u8 0} {* :0}
        }
    }

    test "BITFIELD OVERFLOW: wrap, saturate, fail" {
        r flushall
        replies {
            {bitfield b incrby u2 100 1 overflow sat incrby u2 102 1} {* :1 :1}
            {bitfield b incrby u2 100 1 overflow sat incrby u2 102 1} {* :2 :2}
            {bitfield b incrby u2 100 1 overflow sat incrby u2 102 1} {* :3 :3}
            {bitfield b incrby u2 100 1 overflow sat incrby u2 102 1} {* :0 :3}
            {bitfield b overflow fail incrby u2 102 1} {* nil$}
            {bitfield i incrby i8 0 127} {* :127}
            {bitfield i incrby i8 0 1} {* :-128}
            {bitfield i overflow sat incrby i8 0 -1} {* :-128}
            {bitfield i overflow fail incrby i8 0 -1} {* nil$}
            {bitfield i overflow sat set u8 0 300 overflow wrap set u8 0 -1} {* :128 :255}
            {bitfield l set i64 0 9223372036854775807 incrby i64 0 1} {* :0 :-9223372036854775808}
            {bitfield l overflow sat incrby i64 0 -1} {* :-9223372036854775808}
            {bitfield n overflow fail set u2 0 100} {* nil$}
            {exists n} :1
        }
    }

    test "BITFIELD: invalid arguments" {
        replies {
            {bitfield b get u64 0} "-ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not\
                supported but i64 is."
            {bitfield b get i65 0} "-ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not\
                supported but i64 is."
            {bitfield b get x8 0} "-ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not\
                supported but i64 is."
            {bitfield b get u8 -1} "-ERR bit offset is not an integer or out of range"
            {bitfield b get u8 #x} "-ERR bit offset is not an integer or out of range"
            {bitfield b get u8 4294967296} "-ERR bit offset is not an integer or out of range"
            {bitfield b overflow foo} "-ERR Invalid OVERFLOW type specified"
            {bitfield b set u8 0} "-ERR syntax error"
            {bitfield b set u8 0 x} "-ERR value is not an integer or out of range"
            {bitfield b foo} "-ERR syntax error"
            {bitfield newkey set u8 0 1 foo} "-ERR syntax error"
            {exists newkey} :0
        }
        arity_errors {bitfield bitfield_ro}
    }

    test "a bit that stays as it is changes nothing: WATCH, events" -needs {command watch} {
        r flushall
        r setbit a 5 1
        set c [new_client]
        $c psubscribe __keyevent*
        r config set notify-keyspace-events EA
        r watch a
        r setbit a 5 1
        r bitfield a get u8 0 incrby u8 0 0
        replies {{multi} +OK {ping} +QUEUED {exec} {* +PONG} {setbit a 6 1} :0}
        assert_equal {pmessage __keyevent* __keyevent@0__:setbit a} [$c -read]
        r config set notify-keyspace-events ""
    }

    test "random operations agree with a row of bits kept here" {
        r flushall
        set bits [lrepeat 600 0]
        for {set i 0} {$i < 1500} {incr i} {
            switch [randint 4] {
                0 {
                    set at [randint 600]
                    set bit [randint 2]
                    assert_equal [lindex $bits $at] [r setbit k $at $bit]
                    lset bits $at $bit
                }
                1 {
                    set from [randint 600]
                    set to [expr {$from + [randint [expr {600 - $from}]]}]
                    assert_equal [tcl::mathop::+ {*}[lrange $bits $from $to]] [r bitcount k $from $to bit]
                }
                2 {
                    set from [randint 600]
                    set bit [randint 2]
                    r setbit k 599 [lindex $bits 599]
                    set found [lsearch -start $from $bits $bit]
                    assert_equal $found [r bitpos k $bit $from 599 bit]
                }
                3 {
                    set width [expr {1 + [randint 63]}]
                    set at [randint [expr {600 - $width}]]
                    assert_equal [expr "0b[join [lrange $bits $at [expr {$at + $width - 1}]] {}]"] \
                        [lindex [r bitfield k get u$width $at] 0]
                }
            }
        }
    }
}
