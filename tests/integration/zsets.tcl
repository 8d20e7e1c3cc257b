# The non-blocking sorted set commands. seconds: 3

start_server {tags {zset}} {
    proc make_zset {key encoding args} {
        r del $key
        r zadd $key {*}$args
        if {$encoding eq "skiplist"} {
            set padding [string repeat x 100]
            r zadd $key 0 $padding
            r zrem $key $padding
        }
        assert_encoding $encoding $key
    }

    foreach encoding {listpack skiplist} {
        test "ZADD and its options ($encoding)" {
            make_zset z $encoding 1 a 2 b 3 c
            replies {
                {zadd z 1 a 5 b} :0
                {zadd z ch 1 a 6 b 7 d} :2
                {zadd z nx 9 a 9 e} :1
                {zadd z xx 8 a 9 none} :0
                {zscore z a} {$8}
                {zadd z gt 1 a 10 b} :0
                {zmscore z a b none} {* {$8} {$10} nil$}
                {zadd z gt ch 11 b} :1
                {zadd z lt 1 b} :0
                {zadd z LT CH 5 b} :0
                {zadd z gt 4 new} :1
                {zadd z incr 1 a} {$9}
                {zadd z nx incr 1 a} {nil$}
                {zadd z xx incr 1 none} {nil$}
                {zadd z gt incr -5 a} {nil$}
                {zadd z lt incr -5 a} {$4}
                {zadd z incr inf k} {$inf}
                {zadd z incr -inf k} {-ERR resulting score is not a number (NaN)}
                {zadd z 16 sixteen 1e3 exp -inf min} :3
                {zmscore z sixteen exp min} {* {$16} {$1000} {$-inf}}
                {zincrby z 1.5 a} {$5.5}
                {zincrby z 2 fresh} {$2}
                {zcard z} :11
                {zadd none xx 1 a} :0
                {zadd none xx incr 1 a} {nil$}
                {exists none} :0
            }
        }

        test "ZREM, ZCARD, ZSCORE, ZRANK ($encoding)" {
            make_zset z $encoding 1 a 2 b 2 a2 3 c
            replies {
                {zrank z a} :0
                {zrank z a2} :1
                {zrank z b} :2
                {zrevrank z c} :0
                {zrevrank z a} :3
                {zrank z none} {nil$}
                {zrank z b withscore} {* :2 {$2}}
                {zrevrank z b WITHSCORE} {* :1 {$2}}
                {zrank z none withscore} nil*
                {zrem z none} :0
                {zrem z a none b} :2
                {zcard z} :2
                {zrange z 0 -1} {* {$a2} {$c}}
                {zrem z a2 c x} :2
                {exists z} :0
            }
        }

        test "ZRANGE by rank ($encoding)" {
            make_zset z $encoding 1 a 2 b 3 c 4 d
            replies {
                {zrange z 0 -1} {* {$a} {$b} {$c} {$d}}
                {zrange z 1 2} {* {$b} {$c}}
                {zrange z -2 -1 withscores} {* {$c} {$3} {$d} {$4}}
                {zrange z 0 1 rev} {* {$d} {$c}}
                {zrange z 1 -1 rev withscores} {* {$c} {$3} {$b} {$2} {$a} {$1}}
                {zrevrange z 0 0} {* {$d}}
                {zrange z 3 1} {*}
                {zrange z 4 10} {*}
                {zrange z -100 100} {* {$a} {$b} {$c} {$d}}
            }
        }

        test "ZRANGE by score, and its elders ($encoding)" {
            make_zset z $encoding -inf min 1 a 2 b 2 b2 3 c +inf max
            replies {
                {zrange z 1 2 byscore} {* {$a} {$b} {$b2}}
                {zrange z (1 (3 byscore} {* {$b} {$b2}}
                {zrange z -inf (1 byscore withscores} {* {$min} {$-inf}}
                {zrange z 3 +inf byscore} {* {$c} {$max}}
                {zrange z 2 1 byscore} {*}
                {zrange z 2 1 byscore rev} {* {$b2} {$b} {$a}}
                {zrange z -inf +inf byscore limit 1 2} {* {$a} {$b}}
                {zrange z +inf -inf byscore rev limit 1 2} {* {$c} {$b2}}
                {zrange z -inf +inf byscore limit 4 -1} {* {$c} {$max}}
                {zrange z -inf +inf byscore limit 6 1} {*}
                {zrangebyscore z 1 3 withscores limit 1 2} {* {$b} {$2} {$b2} {$2}}
                {zrevrangebyscore z 3 (1} {* {$c} {$b2} {$b}}
                {zrevrangebyscore z 3 1 limit 1 1 withscores} {* {$b2} {$2}}
                {zcount z 1 2} :3
                {zcount z -inf +inf} :6
                {zcount z (1 (2} :0
                {zcount z 3 1} :0
            }
        }

        test "a range by text is empty if the first and last member are outside it ($encoding)" {
            make_zset z $encoding 5 a 4 b 3 c 2 d 1 e
            replies {
                {zrange z [b + bylex} {*}
                {zrevrangebylex z + [b} {*}
                {zlexcount z [b +} :0
                {zlexcount z - +} :5
            }
        }

        test "a range by text ends at the first member beyond its other end ($encoding)" {
            make_zset z $encoding -1 m 0 b 1 n 2 c
            set listpack [expr {$encoding eq "listpack"}]
            foreach {command of_listpack} {
                {zrangebylex z [c [m} {m b}
                {zrevrangebylex z [m [c} {c n}
                {zrevrangebylex z (n [b} {c n b m}
                {zrange z [c [z bylex} {m b n c}
            } {
                set found [r {*}$command]
                if {$listpack} {assert_equal $of_listpack $found $command}
            }
            if {$listpack} {assert_equal 2 [r zremrangebylex z \[c \[m]}
        }

        test "ZRANGE by text, and its elders ($encoding)" {
            make_zset z $encoding 0 a 0 b 0 c 0 d 0 dd 0 10 0 9
            replies {
                {zrange z - + bylex} {* {$10} {$9} {$a} {$b} {$c} {$d} {$dd}}
                {zrange z [b (dd bylex} {* {$b} {$c} {$d}}
                {zrange z (b [dd bylex} {* {$c} {$d} {$dd}}
                {zrange z + [c bylex rev} {* {$dd} {$d} {$c}}
                {zrange z - [9 bylex} {* {$10} {$9}}
                {zrange z - + bylex limit 2 2} {* {$a} {$b}}
                {zrange z + - bylex} {*}
                {zrangebylex z (a [c} {* {$b} {$c}}
                {zrangebylex z [x [z} {*}
                {zrevrangebylex z [d (a limit 1 5} {* {$c} {$b}}
                {zlexcount z - +} :7
                {zlexcount z [b [d} :3
                {zlexcount z (z +} :0
            }
        }

        test "removing ranges ($encoding)" {
            foreach {command removed left} {
                {zremrangebyrank z 0 1} 2 {c d e f}
                {zremrangebyrank z -2 -1} 2 {a b c d}
                {zremrangebyrank z 2 100} 4 {a b}
                {zremrangebyrank z 4 2} 0 {a b c d e f}
                {zremrangebyscore z 0 0} 6 {}
                {zremrangebylex z [b (d} 2 {a d e f}
                {zremrangebylex z - [c} 3 {d e f}
                {zremrangebyrank z 0 -1} 6 {}
            } {
                make_zset z $encoding 0 a 0 b 0 c 0 d 0 e 0 f
                assert_equal $removed [r {*}$command] $command
                assert_equal $left [r zrange z 0 -1] $command
                foreach m {a b c d e f} {assert_equal [expr {$m in $left ? 0 : ""}] [r zscore z $m]}
                assert_equal [expr {$left ne ""}] [r exists z]
            }
            make_zset z $encoding 1 a 2 b 3 c 4 d
            replies {
                {zremrangebyscore z (1 3} :2
                {zrange z 0 -1} {* {$a} {$d}}
            }
        }

        test "ZPOPMIN, ZPOPMAX, ZMPOP ($encoding)" {
            make_zset z $encoding 1 a 2 b 3 c 4 d 5 e 6 f 7 g
            replies {
                {zpopmin z} {* {$a} {$1}}
                {zpopmax z} {* {$g} {$7}}
                {zpopmin z 0} {*}
                {zpopmax z 2} {* {$f} {$6} {$e} {$5}}
                {zmpop 2 none z min} {* {$z} {* {* {$b} {$2}}}}
                {zmpop 1 z max count 10} {* {$z} {* {* {$d} {$4}} {* {$c} {$3}}}}
                {exists z} :0
                {zmpop 1 z min} nil*
                {zpopmin z} {*}
                {zpopmax z 3} {*}
            }
        }

        test "ZRANDMEMBER ($encoding)" {
            make_zset z $encoding 1 a 2 b 3 c 4 d
            set all {a 1 b 2 c 3 d 4}
            for {set i 0} {$i < 20} {incr i} {
                assert_in [r zrandmember z] {a b c d}
                foreach count {1 2 3 4 5 100} {
                    set got [r zrandmember z $count withscores]
                    assert_equal [expr {2 * min($count, 4)}] [llength $got]
                    assert_equal [expr {min($count, 4)}] [dict size $got]
                    foreach {m score} $got {assert_equal $score [dict get $all $m]}
                }
                assert_equal 10 [llength [r zrandmember z -10]]
            }
            assert_typed {*} zrandmember z 0
        }

        test "ZSCAN ($encoding)" {
            make_zset z $encoding 1 a 2.5 b 3 ab
            assert_equal {a 1 ab 3 b 2.5} [lsort -stride 2 [lindex [r zscan z 0 count 100] 1]]
            assert_equal {a 1 ab 3} [lsort -stride 2 [lindex [r zscan z 0 match a* count 100] 1]]
        }
    }

    test "ZSCAN NOSCORES" -needs {version 8.0} {
        make_zset z listpack 1 a 2 b
        assert_typed {* {$0} {* {$a} {$b}}} zscan z 0 noscores
    }

    test "scores of any kind read back as they were" {
        foreach limit {128 0} {
            with_config [list zset-max-listpack-entries $limit] {
                r del z
                foreach {score shown} {
                    0 0 1 1 -1 -1 0.1 0.1 1e20 1e+20 1e-7 1e-7 3.14159265358979 3.14159265358979 4503599627370497\
                        4503599627370497
                    9007199254740993 9007199254740992 123456789012345678 123456789012345680 17179869184 17179869184\
                        -2147483649 -2147483649
                    9223372036854775807 9223372036854776000 inf inf -infinity -inf 1.7976931348623157e308\
                        1.7976931348623157e+308
                    5e-324 5e-324 0.30000000000000004 0.30000000000000004
                } {
                    r zadd z $score m
                    assert_equal $shown [r zscore z m] "$score with the limit $limit"
                }
            }
        }
    }

    # --- Several -------------------------------------------------------------

    test "ZUNION, ZINTER, ZDIFF and what stores them" {
        make_zset a listpack 1 x 2 y 3 w
        make_zset b skiplist 10 y 20 w 30 v
        r del s none d
        r sadd s x y q
        replies {
            {zunion 2 a b withscores} {* {$x} {$1} {$y} {$12} {$w} {$23} {$v} {$30}}
            {zunion 2 a b} {* {$x} {$y} {$w} {$v}}
            {zunion 3 a b s withscores} {* {$q} {$1} {$x} {$2} {$y} {$13} {$w} {$23} {$v} {$30}}
            {zunion 2 a b weights 2 0.5 withscores} {* {$x} {$2} {$y} {$9} {$v} {$15} {$w} {$16}}
            {zunion 2 a b aggregate min withscores} {* {$x} {$1} {$y} {$2} {$w} {$3} {$v} {$30}}
            {zunion 2 a b aggregate MAX withscores} {* {$x} {$1} {$y} {$10} {$w} {$20} {$v} {$30}}
            {zunion 2 a a withscores} {* {$x} {$2} {$y} {$4} {$w} {$6}}
            {zinter 2 a b withscores} {* {$y} {$12} {$w} {$23}}
            {zinter 2 a b weights 2 3 aggregate max withscores} {* {$y} {$30} {$w} {$60}}
            {zinter 2 a s withscores} {* {$x} {$2} {$y} {$3}}
            {zinter 2 a none} {*}
            {zdiff 2 a b withscores} {* {$x} {$1}}
            {zdiff 3 b a none} {* {$v}}
            {zdiff 2 none a} {*}
            {zunionstore d 2 a b} :4
            {zrange d 0 -1 withscores} {* {$x} {$1} {$y} {$12} {$w} {$23} {$v} {$30}}
            {object encoding d} {$listpack}
            {zinterstore d 2 a b weights 1 2} :2
            {zrange d 0 -1 withscores} {* {$y} {$22} {$w} {$43}}
            {zdiffstore d 2 a b} :1
            {zdiffstore d 2 a a} :0
            {exists d} :0
            {zdiffstore a 2 a b} :1
            {zrange a 0 -1} {* {$x}}
            {zintercard 2 b s} :1
            {zintercard 1 b limit 2} :2
            {zintercard 1 b limit 0} :3
        }
    }

    test "weights and aggregates mean the same in ZUNION, ZINTER and what stores them" {
        r flushall
        make_zset a listpack 1 x 2 y
        make_zset b listpack 10 x 20 z
        foreach {aggregate union inter} {
            sum {y 4 x 12 z 20} {x 12}
            min {x 2 y 4 z 20} {x 2}
            max {y 4 x 10 z 20} {x 10}
        } {
            foreach {command expected} [list union $union inter $inter] {
                assert_equal $expected [r z$command 2 a b weights 2 1 aggregate $aggregate withscores]
                assert_equal [expr {[llength $expected] / 2}] \
                    [r z${command}store d 2 a b weights 2 1 aggregate $aggregate]
                assert_equal $expected [r zrange d 0 -1 withscores]
            }
        }
    }

    test "infinities that cancel out are 0" {
        make_zset a listpack inf x
        make_zset b listpack -inf x
        replies {
            {zunion 2 a b withscores} {* {$x} {$0}}
            {zinter 2 a b withscores} {* {$x} {$0}}
            {zunion 1 a weights 0 withscores} {* {$x} {$0}}
        }
    }

    test "LIMIT with a negative offset counts from the end of the range, but in a listpack" {
        foreach {limit answers} {128 {{} {} {}} 0 {{d e} {c b} {}}} {
            with_config [list zset-max-listpack-entries $limit] {
                r del z l
                r zadd z 1 a 2 b 3 c 4 d 5 e 6 f
                r zadd l 0 a 0 b 0 c 0 d 0 e 0 f
                foreach {from answer} [list -2 [lindex $answers 0] -5 [lindex $answers 2]\
                                           -9223372036854775808 [lindex $answers 2]] {
                    assert_equal $answer [r zrangebyscore z 2 5 limit $from 2]
                    assert_equal $answer [r zrange z 2 5 byscore limit $from -1]
                    assert_equal $answer [r zrangebylex l {[b} {[e} limit $from 3]
                    assert_equal [llength $answer] [r zrangestore d l {[b} {[e} bylex limit $from 2]
                }
                assert_equal [lindex $answers 1] [r zrevrangebyscore z 5 2 limit -2 2]
                assert_equal [lindex $answers 1] [r zrevrangebylex l {[e} {[b} limit -2 2]
                assert_equal {} [r zrangebyscore z 2 5 limit -1 0]
            }
        }
    }

    test "LIMIT in a range by text over different scores skips any members of a listpack" {
        r del z
        r zadd z 1 f 2 b 3 c 4 x 5 d 6 e 7 g
        foreach {command answer} {
            {zrangebylex z [c [f limit 0 10} {f b c} {zrangebylex z [c [f limit 1 10} {b c}
            {zrangebylex z [c [f limit 3 10} {} {zrangebylex z [c [f limit 4 10} {d e}
            {zrangebylex z [c [f limit 4 1} d {zrangebylex z [c [f limit 9 1} {}
            {zrevrangebylex z + [d limit 0 10} {g e d x} {zrevrangebylex z + [d limit 4 10} {}
            {zrevrangebylex z + [d limit 6 10} f {zrange z + [d rev bylex limit 3 1} x
        } {assert_equal $answer [r {*}$command] $command}
    }

    test "LIMIT with -1 in a range of ranks has no effect, whatever its offset" {
        r del z
        r zadd z 1 a 2 b 3 c
        foreach offset {0 2 -1 9223372036854775807} {assert_equal {b c} [r zrange z 1 2 limit $offset -1]}
    }

    test "ZRANGESTORE" {
        make_zset z listpack 1 a 2 b 3 c 4 d
        r set d x
        replies {
            {zrangestore d z 1 2} :2
            {zrange d 0 -1 withscores} {* {$b} {$2} {$c} {$3}}
            {zrangestore d z 1 4 byscore limit 1 2} :2
            {zrange d 0 -1} {* {$b} {$c}}
            {zrangestore d z 0 0 rev} :1
            {zrange d 0 -1} {* {$d}}
            {zrangestore d z - [b bylex} :2
            {zrange d 0 -1} {* {$a} {$b}}
            {zrangestore d z (c - bylex rev limit 0 1} :1
            {zrange d 0 -1} {* {$b}}
            {zrangestore d z 5 1} :0
            {exists d} :0
            {zrangestore z z 0 1} :2
            {zrange z 0 -1} {* {$a} {$b}}
            {zrangestore d none 0 -1} :0
            {zrangestore d z 0 1 withscores} {-ERR syntax error}
        }
    }

    # --- Encodings, and many members ------------------------------------------

    test "a sorted set becomes a skiplist by its members or by a long one" {
        with_config {zset-max-listpack-entries 3 zset-max-listpack-value 5} {
            make_zset z listpack 1 a 2 b 3 c
            r zadd z 5 a
            assert_encoding listpack z
            r zadd z 4 d
            assert_encoding skiplist z
            assert_equal {b c d a} [r zrange z 0 -1]
            r zremrangebyrank z 1 -1
            assert_encoding skiplist z
            r zunionstore d 1 z
            assert_encoding listpack d
            make_zset z listpack 1 12345
            r zadd z 1 123456
            assert_encoding skiplist z
            r del z
            r zadd z 1 a 2 b 3 c 4 d
            assert_encoding skiplist z
            r zrangestore d z 0 2
            assert_encoding listpack d
            r zrangestore d z 0 -1
            assert_encoding skiplist d
            r zunionstore d 1 z
            assert_encoding skiplist d
        }
    }

    test "random changes do what a sorted Tcl list does" {
        foreach {limit size} {128 60 8 500} {
            with_config [list zset-max-listpack-entries $limit] {
                r del z
                array unset model
                for {set i 0} {$i < 2500} {incr i} {
                    set m [pick m[randint $size] [randint $size]]
                    set score [pick [randint 30] [expr {[randint 1000] / 8.0}] -[randint 5]]
                    switch [randint 6] {
                        0 {
                            assert_equal [info exists model($m)] [r zrem z $m]
                            unset -nocomplain model($m)
                        }
                        1 {
                            set by [randint 10]
                            set now [r zincrby z $by $m]
                            if {![info exists model($m)]} {set model($m) 0}
                            assert {$now == $model($m) + $by}
                            set model($m) [expr {$model($m) + $by}]
                        }
                        default {
                            assert_equal [expr {![info exists model($m)]}] [r zadd z $score $m]
                            set model($m) $score
                        }
                    }
                }
                set order [lsort -command {apply {{a b} {
                    if {[lindex $a 0] != [lindex $b 0]} {return [expr {[lindex $a 0] < [lindex $b 0] ? -1 : 1}]}
                    string compare [lindex $a 1] [lindex $b 1]
                }}} [lmap {m s} [array get model] {list $s $m}]]
                set members [lmap e $order {lindex $e 1}]
                assert_equal $members [r zrange z 0 -1]
                assert_equal [lreverse $members] [r zrange z 0 -1 rev]
                for {set i 0} {$i < 200} {incr i} {
                    set from [randint [llength $members]]
                    set to [expr {$from + [randint 40]}]
                    assert_equal [lrange $members $from $to] [r zrange z $from $to]
                    assert_equal $from [r zrank z [lindex $members $from]]
                    set low [randint 60]
                    set high [expr {$low + [randint 30] / 2.0}]
                    set want [lmap e $order {if {[lindex $e 0] < $low || [lindex $e 0] >= $high} continue; lindex $e 1}]
                    assert_equal $want [r zrangebyscore z $low ($high]
                    assert_equal [lreverse $want] [r zrevrangebyscore z ($high $low]
                    assert_equal [llength $want] [r zcount z $low ($high]
                }
                r copy z copied replace
                assert_equal [r debug digest-value z] [r debug digest-value copied]
                assert_equal $members [r zrange copied 0 -1]
                assert_equal 20 [llength [lsort -unique [r zrandmember z 20]]]
                set n [r zremrangebyrank z 5 30]
                assert_equal [lreplace $members 5 30] [r zrange z 0 -1]
            }
        }
    }

    test "ZSCAN sees every member that stays, while others come and go" {
        r del z
        for {set i 1} {$i <= 1000} {incr i} {r zadd z $i stay$i}
        set cursor 0
        set round 0
        array unset seen
        while 1 {
            lassign [r zscan z $cursor count 20] cursor found
            foreach {m score} $found {set seen($m) $score}
            if {$cursor == 0} break
            for {set i 0} {$i < 40} {incr i} {r zadd z 0 come[incr round]}
            if {$round % 80 == 0} {for {set i 0} {$i < 60} {incr i} {r zrem z come[expr {$round - $i}]}}
        }
        for {set i 1} {$i <= 1000} {incr i} {assert_equal $i $seen(stay$i)}
    }

    # --- Protocol and errors -------------------------------------------------

    test "RESP3: scores are doubles, members with scores are pairs" {
        r del z none
        r zadd z 1.5 a 2 b
        set c [new_client -resp 3]
        replies {
            {zscore z a} ,1.5
            {zscore z none} _
            {zmscore z a none} {* ,1.5 _}
            {zincrby z 1 a} ,2.5
            {zadd z incr -1 a} ,1.5
            {zadd z nx incr -1 a} _
            {zrange z 0 -1 withscores} {* {* {$a} ,1.5} {* {$b} ,2}}
            {zrange z 0 -1} {* {$a} {$b}}
            {zrangebyscore z 0 1.5 withscores} {* {* {$a} ,1.5}}
            {zunion 1 z withscores} {* {* {$a} ,1.5} {* {$b} ,2}}
            {zrank z a withscore} {* :0 ,1.5}
            {zrank z none withscore} _
            {zscan z 0} {* {$0} {* {$a} {$1.5} {$b} {$2}}}
            {zmpop 1 z min} {* {$z} {* {* {$a} ,1.5}}}
            {zmpop 1 none min} _
            {zpopmin z} {* {$b} ,2}
            {zpopmin z 1} {*}
            {zadd z 1 a} :1
            {zrandmember z -2 withscores} {* {* {$a} ,1} {* {$a} ,1}}
            {zpopmax z 5} {* {* {$a} ,1}}
        } $c
    }

    test "ZADD refuses what makes no sense, and then does nothing" {
        r del z
        replies {
            {zadd z nan a} {-ERR value is not a valid float}
            {zadd z 1.5.5 a} {-ERR value is not a valid float}
            {zadd z 1 a foo b} {-ERR value is not a valid float}
            {zadd z nx xx 1 a} {-ERR XX and NX options at the same time are not compatible}
            {zadd z gt lt 1 a} {-ERR GT, LT, and/or NX options at the same time are not compatible}
            {zadd z nx gt 1 a} {-ERR GT, LT, and/or NX options at the same time are not compatible}
            {zadd z nx lt 1 a} {-ERR GT, LT, and/or NX options at the same time are not compatible}
            {zadd z incr 1 a 2 b} {-ERR INCR option supports a single increment-element pair}
            {zadd z 1 a 2} {-ERR syntax error}
            {zadd z ch nx} {-ERR syntax error}
            {zincrby z foo a} {-ERR value is not a valid float}
            {zincrby z nan a} {-ERR value is not a valid float}
            {zincrby z ch a} {-ERR syntax error}
            {zincrby z nx XX} {-ERR syntax error}
            {exists z} :0
        }
    }

    test "ranges and options that make no sense" {
        make_zset z listpack 1 a 2 b
        replies {
            {zrange z a b} {-ERR value is not an integer or out of range}
            {zrange z a b byscore} {-ERR min or max is not a float}
            {zrange z (1 [2 byscore} {-ERR min or max is not a float}
            {zrange z a b bylex} {-ERR min or max not valid string range item}
            {zrange z 0 -1 limit 0 1}\
                {-ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX}
            {zrange z [a [b bylex withscores} {-ERR syntax error, WITHSCORES not supported in combination with BYLEX}
            {zrange z 0 1 bylex byscore} {-ERR syntax error}
            {zrange z 0 1 rev rev} {-ERR syntax error}
            {zrange z 0 1 foo} {-ERR syntax error}
            {zrevrange z 0 1 rev} {-ERR syntax error}
            {zrangebyscore z 0 1 byscore} {-ERR syntax error}
            {zrangebyscore z nan 1} {-ERR min or max is not a float}
            {zrangebyscore z 1 2 limit a b} {-ERR value is not an integer or out of range}
            {zrangebylex z - + withscores} {-ERR syntax error, WITHSCORES not supported in combination with BYLEX}
            {zrangebylex z "" +} {-ERR min or max not valid string range item}
            {zrangebylex z -x +} {-ERR min or max not valid string range item}
            {zcount z a b} {-ERR min or max is not a float}
            {zlexcount z a b} {-ERR min or max not valid string range item}
            {zremrangebyrank z a b} {-ERR value is not an integer or out of range}
            {zremrangebyscore z a b} {-ERR min or max is not a float}
            {zremrangebylex z a b} {-ERR min or max not valid string range item}
            {zrank z a foo} {-ERR syntax error}
            {zrank z a withscore x} {-ERR wrong number of arguments for 'zrank' command}
            {zpopmin z -1} {-ERR value is out of range, must be positive}
            {zpopmin z a} {-ERR value is out of range, must be positive}
            {zpopmin z 1 2} {-ERR syntax error}
            {zmpop 0 z min} {-ERR numkeys should be greater than 0}
            {zmpop 2 z min} {-ERR syntax error}
            {zmpop 1 z up} {-ERR syntax error}
            {zmpop 1 z min count 0} {-ERR count should be greater than 0}
            {zmpop 1 z min foo 1} {-ERR syntax error}
            {zrandmember z abc} {-ERR value is not an integer or out of range}
            {zrandmember z 1 foo} {-ERR syntax error}
            {zscan z 0 novalues} {-ERR NOVALUES option can only be used in HSCAN}
            {zunion 0 z} {-ERR at least 1 input key is needed for 'zunion' command}
            {zunionstore d 0 z} {-ERR at least 1 input key is needed for 'zunionstore' command}
            {zintercard 0 z} {-ERR at least 1 input key is needed for 'zintercard' command}
            {zunion a z} {-ERR value is not an integer or out of range}
            {zunion 2 z} {-ERR syntax error}
            {zunion 1 z weights} {-ERR syntax error}
            {zunion 1 z weights x} {-ERR weight value is not a float}
            {zunion 1 z aggregate foo} {-ERR syntax error}
            {zunionstore d 1 z withscores} {-ERR syntax error}
            {zdiff 1 z weights 1} {-ERR syntax error}
            {zintercard 1 z limit -1} {-ERR LIMIT can't be negative}
            {zintercard 1 z limit} {-ERR syntax error}
        }
    }

    test "commands on sorted sets refuse other types" {
        r set str x
        r del d
        make_zset a listpack 1 x
        wrong_types {
            {zadd str 1 a} {zincrby str 1 a} {zrem str a} {zscore str a} {zmscore str a} {zcard str} {zrank str a}\
                {zrevrank str a} {zrange str 0 -1}
            {zrangebyscore str 0 1} {zrangebylex str - +} {zrevrange str 0 1} {zcount str 0 1} {zlexcount str - +}\
                {zpopmin str} {zpopmax str 1}
            {zmpop 1 str min} {zmpop 2 none str min} {zrandmember str} {zrandmember str 1} {zscan str 0}\
                {zunion 2 a str} {zinter 2 none str}
            {zdiff 2 none str} {zunionstore d 2 a str} {zintercard 1 str} {zrangestore d str 0 1}\
                {zremrangebyrank str 0 1} {zremrangebyscore str 0 1}
            {zremrangebylex str - +} {get a} {sadd a x} {hset a f v} {lpush a x}
        }
        assert_typed :0 exists d
    }

    test "a wrong type among many sources is refused, whatever the memory held before" {
        r flushall
        r zadd z 1 a
        r set str x
        for {set i 1} {$i < 200} {incr i} {r set filler:$i [string repeat z [expr {64 * $i}]]}
        for {set i 1} {$i < 200} {incr i} {r del filler:$i}
        foreach command {zunion zinter zdiff {zunionstore d} {zinterstore d} {zdiffstore d} zintercard} {
            foreach count {2 9 17 33 65 129} {
                assert_error_like WRONGTYPE* {r {*}$command $count str {*}[lrepeat [expr {$count - 1}] z]}
            }
        }
        assert_equal 0 [r exists d]
    }

    test "scores, bounds and weights are decimal numbers without blanks" {
        r flushall
        r zadd z 1 a
        assert_typed "-ERR value is not a valid float" zadd z 0x10 b
        assert_typed "-ERR value is not a valid float" zincrby z 0x10 a
        assert_typed "-ERR weight value is not a float" zunion 1 z weights 0x2
        foreach bound {0x0 (0x0 " 0" "( 0"} {assert_typed "-ERR min or max is not a float" zrangebyscore z $bound 5}
    }
}
