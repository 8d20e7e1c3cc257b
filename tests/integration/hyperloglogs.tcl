# PFADD, PFCOUNT, PFMERGE, PFDEBUG, PFSELFTEST.
# seconds: 7

start_server {tags {hyperloglogs}} {
    test "PFADD says whether something changed, and makes the key" {
        r flushall
        replies {
            {pfadd h} :1
            {pfadd h} :0
            {pfadd h a b c} :1
            {pfadd h a} :0
            {pfcount h} :3
            {object encoding h} {$raw}
            {type h} +string
            {pfcount nosuch} :0
            {exists nosuch} :0
        }
        arity_errors {pfadd pfcount pfmerge pfdebug}
    }

    test "the bytes are those of every Valkey" {
        r flushall
        r pfadd h a b c
        assert_equal "HYLL\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x80`\xf3\x80P\xb1\x84K\xfb\x80BZ" [r get h]
        r pfcount h
        assert_equal "HYLL\x01\x00\x00\x00\x03\x00\x00\x00\x00\x00\x00\x00`\xf3\x80P\xb1\x84K\xfb\x80BZ" [r get h]
        replies {
            {pfdebug encoding h} +sparse
            {pfdebug decode h} {$Z:8436 v:1,1 Z:4274 v:2,1 Z:3068 v:1,1 Z:603}
            {pfdebug todense h} :1
            {pfdebug todense h} :0
            {pfdebug encoding h} +dense
            {strlen h} :12304
            {pfcount h} :3
            {pfdebug decode h} "-ERR HLL encoding is not sparse"
            {pfdebug encoding nosuch} "-ERR The specified key does not exist"
            {pfdebug foo h} "-ERR Unknown PFDEBUG subcommand 'foo'"
        }
    }

    test "a transaction that watches a key is executed after PFDEBUG has changed its encoding" {
        foreach what {todense getreg} {
            r del h
            r pfadd h a b c
            r watch h
            r pfdebug $what h
            r multi
            r pfdebug encoding h
            assert_equal dense [r exec]
        }
    }

    test "PFDEBUG SIMD chooses how registers are combined; the results are the same" {
        replies {
            {pfdebug simd maybe} "-ERR Argument must be ON or OFF"
        }
        r flushall
        foreach key {a b} {
            for {set i 0} {$i < 2000} {incr i} {r pfadd $key $key$i}
            r pfdebug todense $key
        }
        foreach {argument answer} {off disabled ON enabled} {
            assert_equal $answer [r pfdebug simd $argument]
            lappend counts [r pfcount a b]
            r pfmerge merged:$argument a b
        }
        assert_equal [lindex $counts 0] [lindex $counts 1]
        assert_equal [r get merged:off] [r get merged:ON]
    }

    test "sparse becomes dense at hll-sparse-max-bytes, and nothing is lost by it" {
        foreach limit {0 20 100 3000} {
            r flushall
            r config set hll-sparse-max-bytes $limit
            set was {}
            for {set i 0} {$i < 1000} {incr i} {
                r pfadd h e$i
                r pfadd all-at-once e$i
                if {[r pfdebug encoding h] ne $was} {set was [r pfdebug encoding h]}
                if {$was eq "sparse" && [r strlen h] > $limit + 18} {fail "sparse with [r strlen h] bytes"}
            }
            r pfmerge copy h
            r pfdebug todense h
            r pfdebug todense copy
            assert_equal [r pfdebug getreg h] [r pfdebug getreg copy]
            assert_range [r pfcount h] 950 1050
        }
        r config set hll-sparse-max-bytes 3000
    }

    test "the estimate is within a few percent, for few and for many" {
        r flushall
        set n 0
        foreach upto {100 1000 10000 50000} {
            while {$n < $upto} {
                set elements {}
                for {set i 0} {$i < 100} {incr i; incr n} {lappend elements element:$n}
                r pfadd h {*}$elements
            }
            assert_range [r pfcount h] [expr {int($n * 0.95)}] [expr {int($n * 1.05)}]
        }
    }

    test "PFCOUNT of several keys and PFMERGE see the union" {
        r flushall
        for {set i 0} {$i < 300} {incr i} {
            r pfadd a e$i
            r pfadd b e[expr {$i + 150}]
        }
        r pfdebug todense b
        set union [r pfcount a b nosuch]
        assert_range $union 430 470
        replies {{pfmerge d a nosuch b} +OK {pfdebug encoding d} +dense {pfmerge e} +OK {pfcount e} :0\
            {pfdebug encoding e} +sparse}
        assert_equal $union [r pfcount d]
        assert_equal $union [r pfcount d a]
        replies {{pfmerge a b} +OK}
        assert_equal $union [r pfcount a]
    }

    test "what is no HyperLogLog is refused" {
        r flushall
        foreach text {"" foo 12 HYLL "HYLL\x02xxxxxxxxxxxxxxxxxx" "HYLL\x00xxxxxxxxxxxxxxxxxxx"} {
            r set s $text
            foreach command {{pfadd s a} {pfcount s} {pfcount s h} {pfmerge d s} {pfmerge s h} {pfdebug encoding s}} {
                assert_error "WRONGTYPE Key is not a valid HyperLogLog string value." [list r {*}$command]
            }
        }
        other_type other
        wrong_types {{pfadd other a} {pfcount other} {pfmerge d other} {pfmerge other d}}
    }

    test "corrupt registers are an error, never a crash" -needs {ours 1} {
        for {set i 0} {$i < 300} {incr i} {
            r del d
            r set s "HYLL\x01[string repeat \x00 11][randstring 0 40]"
            foreach command {{pfadd s a b c d e f} {pfcount s} {pfcount s d} {pfmerge d s} {pfdebug todense s}\
                {pfdebug getreg s} {pfdebug decode s}} {
                if {[catch {r {*}$command} error] && ![string match "INVALIDOBJ*" $error] &&\
                    ![string match "ERR HLL encoding*" $error]} {
                    fail "$command: $error"
                }
            }
        }
        r set s "HYLL\x01[string repeat \x00 10]\x80\x7f"
        assert_error "INVALIDOBJ Corrupted HLL object detected" {r pfcount s}
        assert_error "INVALIDOBJ Corrupted HLL object detected" {r pfadd s a}
        assert_error "INVALIDOBJ Corrupted HLL object detected" {r pfmerge d s}
    }

    test "PFCOUNT on a replica caches the count there, and PFADD drops it" -needs {ours 1} {
        r flushall
        r pfadd h a b
        set value [r get h]
        r debug role replica 127.0.0.1 1
        assert_equal 2 [r pfcount h]
        set cached [r get h]
        assert_not_equal $value $cached
        assert_equal 2 [r pfcount h]
        r debug role primary
        r pfadd h c
        assert_equal 3 [r pfcount h]
    }

    test "what PFADD had changed when it found the value corrupt is propagated" -needs {ours 1} {
        r flushall
        set f [new_follower]
        proc numbers {} {lmap i {1 2 3 4 5 6 7 8} {randint 100000}}
        for {set found 0} {$found < 3} {} {
            r del s
            r pfadd s {*}[numbers]
            r setrange s [expr {16 + [randint [expr {[r strlen s] - 16}]]}] [randstring 1 1]
            set before [r get s]
            heard $f
            if {![catch {r pfadd s {*}[numbers]}] || [r get s] eq $before} continue
            assert_equal [list [list SET s [r get s] KEEPTTL]] [heard $f]
            incr found
        }
    }

    test "events, and no event where nothing changed" {
        r flushall
        set c [new_client]
        $c psubscribe __keyevent*
        r config set notify-keyspace-events EAn
        r pfadd h a
        r pfadd h a
        r pfcount h
        r pfmerge d h
        r config set notify-keyspace-events ""
        foreach expected {{new h} {pfadd h} {new d} {pfadd d}} {
            lassign [$c -read] kind pattern channel key
            assert_equal $expected [list [string range $channel 15 end] $key]
        }
        assert_equal "" [$c -available]
    }

    test "PFSELFTEST" -needs {ours 1} -tags {slow} {
        assert_equal OK [r pfselftest]
    }
}
