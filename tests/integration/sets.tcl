# The set commands.
# seconds: 6

start_server {tags {set}} {
    proc make_set {key encoding args} {
        r del $key
        r sadd $key {*}$args
        if {$encoding eq "hashtable"} {
            set padding [string repeat x 100]
            r sadd $key $padding
            r srem $key $padding
        }
        assert_encoding $encoding $key
    }
    set kinds {
        intset {1 2 3 -5}
        listpack {a b 3 c}
        hashtable {a b 3 c}
    }

    foreach {encoding members} $kinds {
        lassign $members m1 m2 m3 m4
        test "SADD, SISMEMBER, SMISMEMBER, SCARD, SMEMBERS, SREM ($encoding)" {
            make_set s $encoding {*}$members
            assert_typed :1 sismember s $m1
            assert_typed :0 sismember s none
            assert_typed :0 sismember s 77
            assert_typed {* :1 :0 :1 :0} smismember s $m1 none $m4 ""
            assert_typed :4 scard s
            assert_same_elements $members [r smembers s]
            assert_typed :0 sadd s $m1 $m2
            assert_typed :1 sadd s $m1 5
            assert_typed :1 srem s 5 99
            assert_typed :0 srem s none
            assert_typed :2 srem s $m1 $m1 $m2
            assert_same_elements [list $m3 $m4] [r smembers s]
            assert_typed :2 srem s $m3 $m4 x
            assert_typed :0 exists s
        }

        test "SRANDMEMBER ($encoding)" {
            make_set s $encoding {*}$members
            for {set i 0} {$i < 20} {incr i} {
                assert_in [r srandmember s] $members
                foreach count {1 2 3 4 5 100} {
                    set got [r srandmember s $count]
                    assert_equal [expr {min($count, 4)}] [llength $got]
                    assert_equal [llength $got] [llength [lsort -unique $got]]
                    foreach m $got {assert_in $m $members}
                }
                set got [r srandmember s -10]
                assert_equal 10 [llength $got]
                foreach m $got {assert_in $m $members}
            }
            assert_typed {*} srandmember s 0
            assert_typed :4 scard s
        }

        test "SPOP ($encoding)" {
            for {set i 0} {$i < 20} {incr i} {
                make_set s $encoding {*}$members
                set first [r spop s]
                assert_in $first $members
                set two [r spop s 2]
                assert_equal 2 [llength $two]
                assert_same_elements $members [concat $first $two [r smembers s]]
                assert_equal {} [r spop s 0]
                assert_equal 1 [llength [r spop s 5]]
                assert_equal 0 [r exists s]
                make_set s $encoding {*}$members
                assert_same_elements $members [r spop s 4]
                assert_equal 0 [r exists s]
                make_set s $encoding {*}$members
                set all [lmap x $members {r spop s}]
                assert_same_elements $members $all
                assert_equal 0 [r exists s]
            }
        }

        test "SSCAN ($encoding)" {
            make_set s $encoding {*}$members
            lassign [r sscan s 0 count 100] cursor found
            assert_equal 0 $cursor
            assert_same_elements $members $found
            assert_equal [list $m4] [lindex [r sscan s 0 match $m4 count 100] 1]
        }
    }

    test "SMOVE" {
        make_set a listpack x y 1
        make_set b intset 5 6
        r del c
        replies {
            {smove a b none} :0
            {smove a b x} :1
            {sismember a x} :0
            {sismember b x} :1
            {smove a c 1} :1
            {object encoding c} {$intset}
            {smove a b y} :1
            {exists a} :0
            {smove a b y} :0
            {smove b b y} :1
            {smove b b none} :0
            {sadd a x} :1
            {smove a b x} :1
            {exists a} :0
            {scard b} :4
        }
        r set str v
        wrong_types {{smove b str x} {smove str b x}}
        assert_typed :0 smove none str x
    }

    # --- Several sets --------------------------------------------------------

    # Random sets of all encodings, against lists.
    proc random_set {key} {
        set members {}
        set kind [randint 4]
        for {set i [randint 40]} {$i > 0} {incr i -1} {
            lappend members [switch $kind \
                {0 {randint 50} 1 {pick a b c d e f g [randint 20]} default {pick x[randint 30] [randint 50]}}]
        }
        if {$kind == 3} {lappend members [string repeat y 100]}
        r del $key
        if {[llength $members]} {r sadd $key {*}$members}
        lsort -unique $members
    }
    test "SINTER, SUNION, SDIFF, SINTERCARD and what stores them, of any sets" {
        for {set round 0} {$round < 100} {incr round} {
            set keys {}
            set sets {}
            set count [pick 1 2 3 4 12]
            for {set i 0} {$i < $count} {incr i} {
                lappend keys k$i
                lappend sets [random_set k$i]
            }
            set union [lsort -unique [concat {*}$sets]]
            set inter [lmap m [lindex $sets 0] \
                {if {[lsearch -not -exact [lmap s $sets {expr {$m in $s}}] 1] >= 0} continue; set m}]
            set rest [concat {*}[lrange $sets 1 end]]
            set diff [lmap m [lindex $sets 0] {if {$m in $rest} continue; set m}]
            foreach {name want} [list union $union inter $inter diff $diff] {
                assert_same_elements $want [r s$name {*}$keys]
                set into [pick result k0 k[expr {$count - 1}]]
                r copy $into saved replace
                assert_equal [llength $want] [r s${name}store $into {*}$keys]
                assert_same_elements $want [r smembers $into]
                assert_equal [expr {[llength $want] > 0}] [r exists $into]
                r del $into
                if {[r exists saved]} {r rename saved $into}
            }
            assert_equal [llength $inter] [r sintercard $count {*}$keys]
            set limit [expr {1 + [randint 5]}]
            assert_equal [expr {min($limit, [llength $inter])}] [r sintercard $count {*}$keys limit $limit]
        }
    }

    test "the same set twice" {
        make_set s listpack a b c
        assert_same_elements {a b c} [r sinter s s]
        assert_same_elements {a b c} [r sunion s s s]
        assert_equal {} [r sdiff s s]
        assert_equal 3 [r sintercard 2 s s]
    }

    test "a missing set is an empty one" {
        make_set s listpack a b c
        r set target x
        replies {
            {sinter s none} {*}
            {sinter none s} {*}
            {sdiff none s} {*}
            {sunion none none2} {*}
            {sintercard 2 s none} :0
            {sinterstore target s none} :0
            {exists target} :0
            {sinterstore target s none} :0
            {sdiffstore target none s} :0
            {sunionstore target none} :0
            {scard none} :0
            {smembers none} {*}
            {sismember none a} :0
            {smismember none a b} {* :0 :0}
            {srem none a} :0
            {spop none} {nil$}
            {spop none 3} {*}
            {srandmember none} {nil$}
            {srandmember none 3} {*}
            {sscan none 0} {* {$0} {*}}
        }
    }

    test "a result replaces a value of any type" {
        make_set s listpack a b
        r set target x ex 100
        replies {
            {sunionstore target s} :2
            {type target} +set
            {ttl target} :-1
        }
    }

    test "encodings of results" {
        make_set i intset 1 2 3
        make_set l listpack a 1 2
        make_set h hashtable 1 2 4
        replies {
            {sunionstore d i} :3      {object encoding d} {$intset}
            {sunionstore d h} :3      {object encoding d} {$intset}
            {sunionstore d i l} :4    {object encoding d} {$listpack}
            {sinterstore d i l} :2    {object encoding d} {$intset}
            {sinterstore d l h} :2    {object encoding d} {$intset}
            {sdiffstore d l i} :1     {object encoding d} {$listpack}
            {sdiffstore d h i} :1     {object encoding d} {$intset}
        }
    }

    test "options of SINTERCARD" {
        make_set s intset 1 2 3
        replies {
            {sintercard 1 s limit 0} :3
            {sintercard 1 s LIMIT 2} :2
            {sintercard 1 s limit 2 limit 1} :1
            {sintercard 1 s limit -1} {-ERR LIMIT can't be negative}
            {sintercard 1 s limit a} {-ERR LIMIT can't be negative}
            {sintercard 1 s limit} {-ERR syntax error}
            {sintercard 1 s s} {-ERR syntax error}
            {sintercard 0 s} {-ERR numkeys should be greater than 0}
            {sintercard -1 s} {-ERR numkeys should be greater than 0}
            {sintercard a s} {-ERR numkeys should be greater than 0}
            {sintercard 2 s} {-ERR Number of keys can't be greater than number of args}
            {sintercard 9223372036854775807 s} {-ERR Number of keys can't be greater than number of args}
        }
    }

    # --- Encodings -----------------------------------------------------------

    test "a set changes its encoding by what is added" {
        with_config {set-max-intset-entries 4 set-max-listpack-entries 6 set-max-listpack-value 5} {
            foreach {commands encoding} {
                {{1 2 3 4}} intset
                {{1 2 3 4} 5} hashtable
                {{1 2 3} x} listpack
                {{1 2 3 4} abcdef} hashtable
                {123456 ab} hashtable
                {{1 2 3 4 5}} listpack
                {{a 2 3 4 5}} listpack
                {{a 2 3 4 5 6 7}} hashtable
                {a {a a a a a a a a a}} hashtable
                {1 {1 1 1 1 1 1}} hashtable
                {abcdef} hashtable
                {a {b c d e f} g} hashtable
                {a {b c d e f} f} listpack
            } {
                r del s
                foreach members $commands {r sadd s {*}$members}
                assert_equal $encoding [r object encoding s] $commands
                assert_same_elements [lsort -unique [concat {*}$commands]] [r smembers s]
            }
        }
    }

    test "integers of every width" {
        r del s
        set numbers {0 -1 127 -128 32767 -32768 32768 -32769 2147483647 -2147483648 2147483648 9223372036854775807\
            -9223372036854775808}
        foreach n $numbers {assert_typed :1 sadd s $n}
        assert_encoding intset s
        foreach n $numbers {assert_typed :1 sismember s $n}
        assert_same_elements $numbers [r smembers s]
        r sadd s 007 9223372036854775808 -0
        assert_encoding listpack s
        assert_equal 16 [r scard s]
        assert_same_elements [concat $numbers 007 9223372036854775808 -0] [r smembers s]
    }

    test "a large set, changed at random, is what an array would be" {
        foreach kind {int mixed} {
            r del s
            array unset model
            for {set i 0} {$i < 3000} {incr i} {
                set m [if {$kind eq "int"} {randint 700} else {pick [randint 300] [randstring 0 30 alpha]}]
                switch [randint 5] {
                    0 {
                        assert_equal [info exists model($m)] [r srem s $m]
                        unset -nocomplain model($m)
                    }
                    1 {assert_equal [info exists model($m)] [r sismember s $m]}
                    default {
                        assert_equal [expr {![info exists model($m)]}] [r sadd s $m]
                        set model($m) 1
                    }
                }
            }
            assert_equal [array size model] [r scard s]
            assert_same_elements [array names model] [r smembers s]
            r copy s copied replace
            assert_equal [r debug digest-value s] [r debug digest-value copied]
            foreach m [r spop s 100] {
                assert [info exists model($m)]
                unset model($m)
            }
            assert_same_elements [array names model] [r smembers s]
            set sample [r srandmember copied 300]
            assert_equal 300 [llength [lsort -unique $sample]]
        }
    }

    test "SSCAN sees every member that stays, while others come and go" {
        r del s
        for {set i 1} {$i <= 1000} {incr i} {r sadd s stay$i}
        set cursor 0
        set round 0
        array unset seen
        while 1 {
            lassign [r sscan s $cursor count 20] cursor found
            foreach m $found {set seen($m) 1}
            if {$cursor == 0} break
            for {set i 0} {$i < 40} {incr i} {r sadd s come[incr round]}
            if {$round % 80 == 0} {for {set i 0} {$i < 60} {incr i} {r srem s come[expr {$round - $i}]}}
        }
        for {set i 1} {$i <= 1000} {incr i} {assert [info exists seen(stay$i)]}
    }

    test "long members" {
        r del s
        set long [randstring 300 300]
        set huge [randstring 70000 70000]
        r sadd s $long $huge short
        assert_typed :1 sismember s $long
        assert_typed :1 sismember s $huge
        assert_same_elements [list $long $huge short] [r smembers s]
        assert_typed :1 srem s $huge
        assert_equal 2 [r scard s]
    }

    # --- Protocol and errors -------------------------------------------------

    test "RESP3: members are a set" {
        r del s
        r sadd s a
        set c [new_client -resp 3]
        replies {
            {smembers s} {~ {$a}}
            {smembers none} {~}
            {sinter s s} {~ {$a}}
            {sunion s} {~ {$a}}
            {sdiff s none} {~ {$a}}
            {sinter s none} {~}
            {srandmember s} {$a}
            {srandmember s 2} {* {$a}}
            {srandmember s -2} {* {$a} {$a}}
            {srandmember none} _
            {spop none} _
            {spop none 1} {~}
            {spop s 0} {~}
            {smismember s a b} {* :1 :0}
            {sscan s 0} {* {$0} {* {$a}}}
            {spop s 1} {~ {$a}}
        } $c
    }

    test "counts of SPOP and SRANDMEMBER" {
        r del s
        r sadd s a
        replies {
            {spop s -1} {-ERR value is out of range, must be positive}
            {spop s abc} {-ERR value is out of range, must be positive}
            {spop s 9223372036854775808} {-ERR value is out of range, must be positive}
            {spop s 1 2} {-ERR syntax error}
            {srandmember s abc} {-ERR value is not an integer or out of range}
            {srandmember s -9223372036854775808}\
                {-ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807}
            {srandmember s 1 2} {-ERR syntax error}
            {sscan s abc} {-ERR invalid cursor}
            {sscan s 0 novalues} {-ERR NOVALUES option can only be used in HSCAN}
            {sscan s 0 foo} {-ERR syntax error}
        }
    }

    test "commands on sets refuse other types" {
        r set str x
        r del s d
        r sadd s a
        wrong_types {
            {sadd str a} {srem str a} {sismember str a} {smismember str a} {scard str} {smembers str} {spop str}\
                {spop str 1} {srandmember str}
            {srandmember str 1} {sscan str 0} {sinter str} {sinter s str} {sinter none str} {sunion s str}\
                {sdiff s str} {sdiff none str}
            {sinterstore d s str} {sunionstore d str} {sdiffstore d s str} {sintercard 2 s str} {get s} {hget s f}
        }
        assert_typed :0 exists d
    }
}

start_server {} {
    test "SMOVE of a member that the destination has leaves it as it was for WATCH" {
        set other [new_client]
        foreach {there reply} {m 1 n {}} {
            r del from to
            r sadd from m other
            r sadd to $there
            r watch to
            $other smove from to m
            r multi
            r scard to
            assert_equal $reply [r exec]
            assert_equal {0 1} [list [r sismember from m] [r sismember to m]]
        }
    }
}
