# The hash commands.

start_server {tags {hash}} {
    # Both encodings must behave the same: the tests run on a small hash and on one that is a table.
    proc make_hash {key encoding args} {
        r del $key
        r hset $key {*}$args
        if {$encoding eq "hashtable"} {
            r hset $key padding [string repeat x 100]
            r hdel $key padding
        }
        assert_encoding $encoding $key
    }

    foreach encoding {listpack hashtable} {
        test "HSET, HGET, HMGET, HEXISTS, HSTRLEN, HLEN ($encoding)" {
            make_hash h $encoding f v n 12 "" empty
            replies {
                {hget h f} {$v}
                {hget h n} {$12}
                {hget h ""} {$empty}
                {hget h none} {nil$}
                {hset h f w g x} :1
                {hset h f v f w} :0
                {hget h f} {$w}
                {hset h e ""} :1
                {hget h e} {$}
                {hmget h f none g} {* {$w} nil$ {$x}}
                {hexists h f} :1
                {hexists h none} :0
                {hstrlen h n} :2
                {hstrlen h none} :0
                {hlen h} :5
            }
        }

        test "HDEL deletes fields, and the key with the last ($encoding)" {
            make_hash h $encoding a 1 b 2 c 3
            replies {
                {hdel h none} :0
                {hdel h a none a} :1
                {hlen h} :2
                {hdel h b c d} :2
                {exists h} :0
                {hdel h a} :0
            }
        }

        test "HGETALL, HKEYS, HVALS ($encoding)" {
            make_hash h $encoding a 1 b 2 c three
            assert_equal {a 1 b 2 c three} [concat {*}[lsort [lmap {f v} [r hgetall h] {list $f $v}]]]
            assert_same_elements {a b c} [r hkeys h]
            assert_same_elements {1 2 three} [r hvals h]
        }

        test "HSETNX sets only what is missing ($encoding)" {
            make_hash h $encoding f v
            replies {
                {hsetnx h f w} :0
                {hget h f} {$v}
                {hsetnx h g w} :1
                {hget h g} {$w}
            }
        }

        test "HINCRBY ($encoding)" {
            make_hash h $encoding f v n 5 max 9223372036854775807 padded " 5"
            replies {
                {hincrby h n 1} :6
                {hincrby h n -10} :-4
                {hincrby h new 7} :7
                {hget h n} {$-4}
                {hincrby h f 1} {-ERR hash value is not an integer}
                {hincrby h padded 1} {-ERR hash value is not an integer}
                {hincrby h max 1} {-ERR increment or decrement would overflow}
                {hincrby h max 0} :9223372036854775807
                {hincrby h n abc} {-ERR value is not an integer or out of range}
                {hincrby h n 9223372036854775808} {-ERR value is not an integer or out of range}
            }
            r hset h min -9223372036854775808
            assert_typed {-ERR increment or decrement would overflow} hincrby h min -1
        }

        test "HINCRBYFLOAT ($encoding)" {
            make_hash h $encoding f v n 10.5 e 5.0e3
            replies {
                {hincrbyfloat h n 0.1} {$10.6}
                {hincrbyfloat h n -5} {$5.6}
                {hincrbyfloat h e 2.0e2} {$5200}
                {hincrbyfloat h new 1.25} {$1.25}
                {hget h n} {$5.6}
                {hincrbyfloat h f 1} {-ERR hash value is not a float}
                {hincrbyfloat h n abc} {-ERR value is not a valid float}
                {hincrbyfloat h n " 1"} {-ERR value is not a valid float}
                {hincrbyfloat h n nan} {-ERR value is not a valid float}
                {hincrbyfloat h n inf} {-ERR value is NaN or Infinity}
                {hincrbyfloat h n -inf} {-ERR value is NaN or Infinity}
            }
        }

        test "HRANDFIELD ($encoding)" {
            make_hash h $encoding a 1 b 2 c 3 d 4
            set all {a 1 b 2 c 3 d 4}
            for {set i 0} {$i < 20} {incr i} {
                assert_in [r hrandfield h] {a b c d}
                foreach count {1 2 3 4 5 100} {
                    set got [r hrandfield h $count]
                    assert_equal [expr {min($count, 4)}] [llength $got]
                    assert_equal [llength $got] [llength [lsort -unique $got]]
                    foreach f $got {assert_in $f {a b c d}}
                    set got [r hrandfield h $count withvalues]
                    assert_equal [expr {2 * min($count, 4)}] [llength $got]
                    foreach {f v} $got {assert_equal $v [dict get $all $f]}
                }
                assert_equal 10 [llength [r hrandfield h -10]]
                foreach {f v} [r hrandfield h -10 withvalues] {assert_equal $v [dict get $all $f]}
            }
            assert_typed {*} hrandfield h 0
            assert_typed {*} hrandfield h 0 withvalues
        }

        test "HRANDFIELD chooses every field ($encoding)" {
            make_hash h $encoding {*}[concat {*}[lmap i {0 1 2 3 4 5 6 7 8 9} {list f$i $i}]]
            foreach count {1 3 -1 8} {
                set seen {}
                for {set i 0} {$i < 300 && [dict size $seen] < 10} {incr i} {
                    foreach f [r hrandfield h $count] {dict incr seen $f}
                }
                assert_equal 10 [dict size $seen] "count $count"
            }
        }

        test "HSCAN ($encoding)" {
            make_hash h $encoding a 1 b 2 ab 3
            set all {}
            lassign [r hscan h 0 count 100] cursor found
            assert_equal 0 $cursor
            assert_equal {a 1 ab 3 b 2} [concat {*}[lsort [lmap {f v} $found {list $f $v}]]]
            assert_same_elements {a 1 ab 3} [lindex [r hscan h 0 match a* count 100] 1]
            assert_same_elements {a b ab} [lindex [r hscan h 0 novalues count 100] 1]
            assert_same_elements {b ab} [lindex [r hscan h 0 count 100 novalues match *b] 1]
        }
    }

    test "HSET and HMSET take pairs only" {
        r del h
        replies {
            {hset h a} {-ERR wrong number of arguments for 'hset' command}
            {hset h a b c} {-ERR wrong number of arguments for 'hset' command}
            {hmset h a b c} {-ERR wrong number of arguments for 'hmset' command}
            {exists h} :0
            {hmset h a b c d} +OK
            {hget h c} {$d}
        }
    }

    test "RESP3: HGETALL is a map, HRANDFIELD gives pairs" {
        r del h
        r hset h f v
        set c [new_client -resp 3]
        replies {
            {hgetall h} {% {$f} {$v}}
            {hgetall none} {%}
            {hkeys h} {* {$f}}
            {hmget h f g} {* {$v} _}
            {hget h g} _
            {hrandfield none} _
            {hrandfield h 2 withvalues} {* {* {$f} {$v}}}
            {hrandfield h -2 withvalues} {* {* {$f} {$v}} {* {$f} {$v}}}
            {hrandfield h 1} {* {$f}}
            {hscan h 0} {* {$0} {* {$f} {$v}}}
            {hincrbyfloat h n 1.5} {$1.5}
        } $c
    }

    test "a hash becomes a table by its fields or by a long one" {
        with_config {hash-max-listpack-entries 4 hash-max-listpack-value 8} {
            r del h
            r hset h a 1 b 2 c 3 d 4
            assert_encoding listpack h
            r hset h a 9
            assert_encoding listpack h
            r hset h e 5
            assert_encoding hashtable h
            assert_equal 9 [r hget h a]
            assert_equal 5 [r hlen h]
            r hdel h a b c d
            assert_encoding hashtable h
            r del h
            r hset h f 12345678
            assert_encoding listpack h
            r hset h f 123456789
            assert_encoding hashtable h
            assert_equal 123456789 [r hget h f]
            r del h
            r hset h longfield v
            assert_encoding hashtable h
            r del h
            r hset h a 1 b 2 c 3 d 4 e 5
            assert_encoding hashtable h
            r del h
            r hset h a 1 a 2 a 3 a 4 a 5
            assert_encoding hashtable h
            assert_equal 1 [r hlen h]
            r del h
            r hset h a 1
            r hincrbyfloat h a 0.00000000000001
            assert_encoding hashtable h
        }
    }

    test "a large hash, changed at random, is what a dict would be" {
        foreach {limit size} {512 40 16 400} {
            with_config [list hash-max-listpack-entries $limit] {
                r del h
                set model {}
                for {set i 0} {$i < 1500} {incr i} {
                    set f [pick f[randint $size] [randint $size]]
                    switch [randint 4] {
                        0 {
                            assert_equal [dict exists $model $f] [r hdel h $f]
                            dict unset model $f
                        }
                        1 {
                            set v [randstring 0 80]
                            assert_equal [expr {![dict exists $model $f]}] [r hset h $f $v]
                            dict set model $f $v
                        }
                        2 {
                            set v [randint 100000]
                            r hset h $f $v
                            dict set model $f $v
                        }
                        3 {assert_equal [if {[dict exists $model $f]} {dict get $model $f}] [r hget h $f]}
                    }
                }
                assert_equal [dict size $model] [r hlen h]
                assert_equal [lsort -stride 2 $model] [lsort -stride 2 [r hgetall h]]
                r del copied
                r copy h copied
                assert_equal [r debug digest-value h] [r debug digest-value copied]
                assert_equal [lsort -stride 2 $model] [lsort -stride 2 [r hgetall copied]]
            }
        }
    }

    test "HSCAN sees every field that stays, while others come and go" {
        r del h
        r hset h {*}[concat {*}[lmap i [lrepeat 1000 x] {list stay[incr n] $n}]]
        assert_encoding hashtable h
        set cursor 0
        set seen {}
        set round 0
        while 1 {
            lassign [r hscan h $cursor count 20] cursor found
            foreach {f v} $found {dict set seen $f $v}
            if {$cursor == 0} break
            for {set i 0} {$i < 40} {incr i} {r hset h come[incr round] x}
            if {$round % 80 == 0} {for {set i 0} {$i < 60} {incr i} {r hdel h come[expr {$round - $i}]}}
        }
        for {set i 1} {$i <= 1000} {incr i} {assert_equal $i [dict get $seen stay$i]}
    }

    test "large fields and values" {
        r del h
        set field [string repeat f 300]
        set value [randstring 100000 100000]
        r hset h $field $value small x
        assert_equal $value [r hget h $field]
        assert_equal 100000 [r hstrlen h $field]
        assert_equal {x} [r hget h small]
        r hset h $field short
        assert_equal short [r hget h $field]
        r hset h $field $value
        r copy h h2
        r hset h $field other
        assert_equal $value [r hget h2 $field]
        assert_morethan [r memory usage h2] 100000
        r del h h2
    }

    test "options of HRANDFIELD and HSCAN" {
        r del h
        r hset h f v
        replies {
            {hrandfield h abc} {-ERR value is not an integer or out of range}
            {hrandfield h -9223372036854775808}\
                {-ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807}
            {hrandfield h -9223372036854775807 withvalues} {-ERR value is out of range}
            {hrandfield h 4611686018427387904 withvalues} {-ERR value is out of range}
            {hrandfield h 4611686018427387903 WITHVALUES} {* {$f} {$v}}
            {hrandfield h 1 foo} {-ERR syntax error}
            {hrandfield h 1 withvalues foo} {-ERR syntax error}
            {hscan h abc} {-ERR invalid cursor}
            {hscan h -1} {-ERR invalid cursor}
            {hscan h 0 count 0} {-ERR syntax error}
            {hscan h 0 count abc} {-ERR value is not an integer or out of range}
            {hscan h 0 count} {-ERR syntax error}
            {hscan h 0 type hash} {-ERR syntax error}
            {hscan h 0 noscores} {-ERR NOSCORES option can only be used in ZSCAN}
            {hscan h 0 NoValues} {* {$0} {* {$f}}}
        }
    }

    test "a hash is renamed, found and deleted like any key" {
        r flushdb
        r hset h f v g 1
        assert_equal hash [r type h]
        r rename h h2
        assert_equal v [r hget h2 f]
        assert_equal {h2} [lindex [r scan 0 count 1000 type hash] 1]
        r expire h2 100
        r hset h2 f w
        assert_range [r ttl h2] 95 100
        assert_equal 1 [r unlink h2]
        r hset big {*}[concat {*}[lmap i [lrepeat 2000 x] {list f[incr n] $n}]]
        assert_equal 1 [r unlink big]
        assert_equal 0 [r exists big]
    }
}
