# The non-blocking list commands. seconds: 4

start_server {tags {list}} {
    # A quicklist results from a small limit of elements per node; a compressed one from compressible text.
    set kinds {
        listpack {list-max-listpack-size -2}
        quicklist {list-max-listpack-size 3}
        compressed {list-max-listpack-size 5 list-compress-depth 1}
    }
    proc make_list {key args} {
        r del $key
        r rpush $key {*}$args
    }

    foreach {kind settings} $kinds {
        test "pushing and reading ($kind)" {
            with_config $settings {
                r del l
                replies {
                    {rpush l a b c} :3
                    {lpush l x 1} :5
                    {rpushx l 2 y} :7
                    {lpushx l z} :8
                    {lrange l 0 -1} {* {$z} {$1} {$x} {$a} {$b} {$c} {$2} {$y}}
                    {lrange l 2 4} {* {$x} {$a} {$b}}
                    {lrange l -2 -1} {* {$2} {$y}}
                    {lrange l -100 1} {* {$z} {$1}}
                    {lrange l 6 100} {* {$2} {$y}}
                    {lrange l 5 2} {*}
                    {lrange l 8 9} {*}
                    {lindex l 0} {$z}
                    {lindex l 6} {$2}
                    {lindex l -1} {$y}
                    {lindex l -8} {$z}
                    {lindex l 8} {nil$}
                    {lindex l -9} {nil$}
                    {llen l} :8
                }
            }
        }

        test "popping ($kind)" {
            with_config $settings {
                make_list l 1 2 3 4 5 6 7 8 9 10
                replies {
                    {lpop l} {$1}
                    {rpop l} {$10}
                    {lpop l 2} {* {$2} {$3}}
                    {rpop l 3} {* {$9} {$8} {$7}}
                    {lpop l 0} {*}
                    {rpop l 100} {* {$6} {$5} {$4}}
                    {exists l} :0
                    {lpop l} {nil$}
                    {lpop l 2} nil*
                    {rpop l 0} nil*
                }
            }
        }

        test "LSET ($kind)" {
            with_config $settings {
                make_list l a b c d e f g
                replies {
                    {lset l 0 A} +OK
                    {lset l 3 12345} +OK
                    {lset l -1 last} +OK
                    {lset l 7 x} {-ERR index out of range}
                    {lset l -8 x} {-ERR index out of range}
                    {lrange l 0 -1} {* {$A} {$b} {$c} {$12345} {$e} {$f} {$last}}
                    {lset none 0 x} {-ERR no such key}
                    {lset l a x} {-ERR value is not an integer or out of range}
                }
            }
        }

        test "LINSERT ($kind)" {
            with_config $settings {
                make_list l a b c d e f g
                replies {
                    {linsert l before a first} :8
                    {linsert l after g last} :9
                    {linsert l after c 1} :10
                    {linsert l BEFORE d 2} :11
                    {linsert l after c 0} :12
                    {linsert l before 2 x} :13
                    {linsert l before zz x} :-1
                    {lrange l 0 -1} {* {$first} {$a} {$b} {$c} {$0} {$1} {$x} {$2} {$d} {$e} {$f} {$g} {$last}}
                    {linsert none before a x} :0
                    {linsert l foo a x} {-ERR syntax error}
                }
            }
        }

        test "LREM ($kind)" {
            with_config $settings {
                make_list l a x b x c 1 x d x 1
                replies {
                    {lrem l 1 x} :1
                    {lrange l 0 -1} {* {$a} {$b} {$x} {$c} {$1} {$x} {$d} {$x} {$1}}
                    {lrem l -2 x} :2
                    {lrange l 0 -1} {* {$a} {$b} {$x} {$c} {$1} {$d} {$1}}
                    {lrem l 0 1} :2
                    {lrem l 0 none} :0
                    {lrem l 5 x} :1
                    {lrange l 0 -1} {* {$a} {$b} {$c} {$d}}
                    {lrem l a x} {-ERR value is not an integer or out of range}
                }
                foreach m {a b c d} {r lrem l 0 $m}
                assert_typed :0 exists l
            }
        }

        test "LTRIM ($kind)" {
            with_config $settings {
                foreach {start end} {0 -1 1 -1 0 -2 3 5 -3 -2 2 100 -100 4 5 1 20 30} {
                    make_list l 0 1 2 3 4 5 6 7 8 9
                    assert_typed +OK ltrim l $start $end
                    set from [expr {$start < 0 ? max(0, 10 + $start) : $start}]
                    set to [expr {$end < 0 ? 10 + $end : min($end, 9)}]
                    assert_equal [lrange {0 1 2 3 4 5 6 7 8 9} $from $to] [r lrange l 0 -1] "$start $end"
                }
                assert_typed :0 exists l
            }
        }

        test "LPOS ($kind)" {
            with_config $settings {
                make_list l a b c 1 2 3 c c 1 c
                replies {
                    {lpos l c} :2
                    {lpos l 1} :3
                    {lpos l c rank 2} :6
                    {lpos l c rank -1} :9
                    {lpos l c rank -4} :2
                    {lpos l c rank 5} {nil$}
                    {lpos l none} {nil$}
                    {lpos l none count 1} {*}
                    {lpos l c count 0} {* :2 :6 :7 :9}
                    {lpos l c count 2} {* :2 :6}
                    {lpos l c count 0 rank 3} {* :7 :9}
                    {lpos l c count 0 rank -2} {* :7 :6 :2}
                    {lpos l c count 0 maxlen 7} {* :2 :6}
                    {lpos l c count 0 maxlen 3 rank -1} {* :9 :7}
                    {lpos l c maxlen 2} {nil$}
                    {lpos none c} {nil$}
                    {lpos none c count 0} {*}
                }
            }
        }

        test "LMOVE and RPOPLPUSH ($kind)" {
            with_config $settings {
                make_list a 1 2 3 4 5 6
                r del b
                replies {
                    {rpoplpush a b} {$6}
                    {lmove a b left right} {$1}
                    {lmove a b left left} {$2}
                    {lmove a b right right} {$5}
                    {lrange a 0 -1} {* {$3} {$4}}
                    {lrange b 0 -1} {* {$2} {$6} {$1} {$5}}
                    {lmove b b left right} {$2}
                    {rpoplpush b b} {$2}
                    {lmove b b left left} {$2}
                    {lrange b 0 -1} {* {$2} {$6} {$1} {$5}}
                    {rpoplpush a b} {$4}
                    {lmove a b RIGHT LEFT} {$3}
                    {exists a} :0
                    {rpoplpush a b} {nil$}
                    {lmove a b left left} {nil$}
                    {lrange b 0 -1} {* {$3} {$4} {$2} {$6} {$1} {$5}}
                }
                make_list one x
                assert_typed {$x} rpoplpush one one
                assert_typed {* {$x}} lrange one 0 -1
            }
        }

        test "LMPOP ($kind)" {
            with_config $settings {
                make_list a 1 2 3 4 5 6
                r del none
                replies {
                    {lmpop 2 none a left} {* {$a} {* {$1}}}
                    {lmpop 2 none a right count 2} {* {$a} {* {$6} {$5}}}
                    {lmpop 1 a LEFT COUNT 10} {* {$a} {* {$2} {$3} {$4}}}
                    {exists a} :0
                    {lmpop 1 a left} nil*
                }
            }
        }

        test "random changes do what a Tcl list does ($kind)" {
            with_config $settings {
                r del l
                set model {}
                proc random_element {} {
                    switch [randint 5] {
                        0 {randint 20}
                        1 {randint 10000000000}
                        2 {string repeat [pick ab cd] [randint 40]}
                        3 {string repeat packs [randint 200]}
                        4 {pick x y z [string repeat large [pick 1 3000]]}
                    }
                }
                for {set i 0} {$i < 2500} {incr i} {
                    set len [llength $model]
                    set e [random_element]
                    set at [expr {$len ? [randint $len] : 0}]
                    switch [randint [expr {$len > 60 ? 10 : 7}]] {
                        0 {r rpush l $e; lappend model $e}
                        1 {r lpush l $e; set model [linsert $model 0 $e]}
                        2 {r rpush l $e 1 $e; lappend model $e 1 $e}
                        3 {if {$len} {r lset l $at $e; lset model $at $e}}
                        4 {
                            if {!$len} continue
                            set pivot [lindex $model $at]
                            set at [lsearch -exact $model $pivot]
                            if {[randint 2]} {
                                r linsert l before $pivot $e
                                set model [linsert $model $at $e]
                            } else {
                                r linsert l after $pivot $e
                                set model [linsert $model $at+1 $e]
                            }
                        }
                        5 {
                            set count [expr {[randint 5] - 2}]
                            set places [lsearch -exact -all $model $e]
                            if {$count < 0} {set places [lreverse $places]}
                            if {$count} {set places [lrange $places 0 [expr {abs($count) - 1}]]}
                            assert_equal [llength $places] [r lrem l $count $e]
                            foreach place [lsort -integer -decreasing $places] {
                                set model [lreplace $model $place $place]
                            }
                        }
                        6 {assert_equal [lindex $model $at] [r lindex l [pick $at [expr {$at - $len}]]]}
                        7 {
                            set n [expr {1 + [randint 4]}]
                            assert_equal [lrange $model 0 $n-1] [r lpop l $n]
                            set model [lrange $model $n end]
                        }
                        8 {
                            set n [expr {1 + [randint 4]}]
                            assert_equal [lreverse [lrange $model end-[expr {$n - 1}] end]] [r rpop l $n]
                            set model [lrange $model 0 end-$n]
                        }
                        9 {
                            set end [expr {$at + [randint $len]}]
                            r ltrim l $at $end
                            set model [lrange $model $at $end]
                        }
                    }
                    assert_equal [llength $model] [r llen l]
                    if {$i % 50 == 0} {
                        assert_equal $model [r lrange l 0 -1]
                        assert_equal [lsearch -exact -all $model x] [r lpos l x count 0]
                        assert_equal [lreverse [lsearch -exact -all $model x]] [r lpos l x count 0 rank -1]
                        if {[llength $model]} {
                            r copy l copied replace
                            assert_equal [r debug digest-value l] [r debug digest-value copied]
                            r memory usage l samples 0
                        }
                    }
                }
                assert_equal $model [r lrange l 0 -1]
            }
        }
    }

    # --- Encodings -----------------------------------------------------------

    test "a list becomes a chain when a node would be too full, and a listpack when half of one is left" {
        with_config {list-max-listpack-size 4} {
            make_list l a b c d
            assert_encoding listpack l
            r rpush l e
            assert_encoding quicklist l
            r lpop l
            assert_encoding quicklist l
            r lpop l 3
            assert_encoding listpack l
            assert_equal {e} [r lrange l 0 -1]
            make_list l a b c d e f g
            assert_encoding quicklist l
            r ltrim l 3 3
            assert_encoding listpack l
        }
        # The element that moves is in the list that changes its encoding.
        foreach command {{lmove l l left right} {rpoplpush l l} {blmove l l left right 1}} moved {A B A} {
            r del l
            r config set list-max-listpack-size -1
            r rpush l [string repeat A 6000] [string repeat B 6000]
            r config set list-max-listpack-size -2
            assert_equal [string repeat $moved 6000] [r {*}$command]
            assert_equal [lsort [list [string repeat A 6000] [string repeat B 6000]]] [lsort [r lrange l 0 -1]]
        }
        with_config {list-max-listpack-size -1} {
            make_list l [string repeat x 4000]
            assert_encoding listpack l
            r rpush l [string repeat x 100]
            assert_encoding quicklist l
            r lset l 0 small
            assert_encoding quicklist l
            r lset l 0 [string repeat y 5000]
            assert_encoding quicklist l
            assert_equal [string repeat y 5000] [r lindex l 0]
            r lpop l
            assert_encoding listpack l
        }
        with_config {list-max-listpack-size 0} {
            make_list l a
            assert_encoding listpack l
            r rpush l b
            assert_encoding quicklist l
            assert_equal {a b} [r lrange l 0 -1]
        }
        with_config {list-max-listpack-size 1000} {
            make_list l {*}[lrepeat 9 [string repeat x 1000]]
            assert_encoding quicklist l
        }
    }

    test "large elements" {
        set large [randstring 100000 100000]
        make_list l a $large b
        assert_encoding quicklist l
        assert_equal $large [r lindex l 1]
        assert_equal [list a $large b] [r lrange l 0 -1]
        assert_equal 1 [r lpos l $large]
        r linsert l after $large c
        r linsert l before $large d
        r linsert l before b $large
        r linsert l after a $large
        assert_equal [list a $large d $large c $large b] [r lrange l 0 -1]
        r copy l copied replace
        r lset l 1 small
        assert_equal [list a small d $large c $large b] [r lrange l 0 -1]
        assert_equal $large [r lindex copied 1]
        r lset l 0 $large
        assert_equal 2 [r lrem l -2 $large]
        assert_equal [list $large small d c b] [r lrange l 0 -1]
        assert_equal b [r rpoplpush copied l]
        r rpush l $large
        assert_equal $large [r rpop l]
    }

    # --- Protocol and errors -------------------------------------------------

    test "RESP3: what is missing is null" {
        r del none l
        r rpush l a
        set c [new_client -resp 3]
        replies {
            {lpop none} _
            {lpop none 1} _
            {lindex l 5} _
            {lpos l z} _
            {lmpop 1 none left} _
            {rpoplpush none l} _
            {lmove none l left left} _
            {lpop l 1} {* {$a}}
        } $c
    }

    test "options of LPOS, LMOVE, LMPOP, LPOP" {
        make_list l a b
        replies {
            {lpos l a rank 0} {-ERR RANK can't be zero: use 1 to start from the first match, 2 from the second ... or\
                use negative to start from the end of the list}
            {lpos l a rank -9223372036854775808}\
                {-ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807}
            {lpos l a rank x} {-ERR value is not an integer or out of range}
            {lpos l a count -1} {-ERR COUNT can't be negative}
            {lpos l a maxlen -1} {-ERR MAXLEN can't be negative}
            {lpos l a foo 1} {-ERR syntax error}
            {lpos l a rank} {-ERR syntax error}
            {lmove l l up left} {-ERR syntax error}
            {lmove l l left up} {-ERR syntax error}
            {lmpop 0 l left} {-ERR numkeys should be greater than 0}
            {lmpop a l left} {-ERR numkeys should be greater than 0}
            {lmpop 2 l left} {-ERR syntax error}
            {lmpop 1 l up} {-ERR syntax error}
            {lmpop 1 l left count 0} {-ERR count should be greater than 0}
            {lmpop 1 l left count a} {-ERR count should be greater than 0}
            {lmpop 1 l left count} {-ERR syntax error}
            {lmpop 1 l left count 1 count 1} {-ERR syntax error}
            {lpop l -1} {-ERR value is out of range, must be positive}
            {lpop l a} {-ERR value is out of range, must be positive}
            {lpop l 1 2} {-ERR wrong number of arguments for 'lpop' command}
            {lrange l a 1} {-ERR value is not an integer or out of range}
            {lindex l a} {-ERR value is not an integer or out of range}
            {ltrim l 0 a} {-ERR value is not an integer or out of range}
            {llen l} :2
        }
    }

    test "commands on lists refuse other types" {
        r set s x
        make_list l a
        r del none
        wrong_types {
            {lpush s a} {rpush s a} {lpushx s a} {rpushx s a} {lpop s} {lpop s 1} {rpop s 0} {llen s} {lindex s 0}\
                {lset s 0 a} {lrange s 0 1}
            {ltrim s 0 1} {lrem s 0 a} {linsert s before a b} {lpos s a} {rpoplpush s l} {rpoplpush l s}\
                {lmove s l left left} {lmove l s left left}
            {lmpop 1 s left} {lmpop 2 s l left} {lmpop 2 none s left} {get l} {sadd l a} {hset l f v}
        }
        assert_typed {* {$l} {* {$a}}} lmpop 2 l s left
        assert_typed {nil$} rpoplpush none s
    }

    test "LMOVE between nodes keeps the bytes of an element that was a node of its own" {
        r del l
        r config set list-max-listpack-size -1
        set a [string repeat A 6000]
        set b [string repeat B 6000]
        r rpush l $a $b
        # An element in a separate node now fits into a node with others: its bytes are copied there.
        r config set list-max-listpack-size -2
        assert_equal $a [r lmove l l left right]
        assert_equal [list $b $a] [r lrange l 0 -1]
        r rpush l2 x
        assert_equal $a [r rpoplpush l l2]
        assert_equal $b [r lmove l l2 right right]
        assert_equal [list $a x $b] [r lrange l2 0 -1]
    }
}
