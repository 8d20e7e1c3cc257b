# RESTORE of payloads of older servers: ziplists, zipmaps, scores as text. The formats are in src/formats/rdb_legacy.h
# and rdb.h. seconds: 2

# A string in the format of payloads.
proc packed_string {text} {
    set len [string length $text]
    if {$len < 64} {return [binary format c $len]$text}
    if {$len < 16384} {return [binary format S [expr {0x4000 | $len}]]$text}
    return "\x80[binary format I $len]$text"
}

# A ziplist of {kind value …}; kinds: s6, s14, s32 (strings by the size of their length), i8, i16, i24, i32, i64, imm
# (0..12). long 1: lengths of previous elements take 5 bytes even if 1 would be enough.
proc ziplist_element {kind value} {
    set len [string length $value]
    switch -exact -- $kind {
        s6 {return [binary format c $len]$value}
        s14 {return [binary format S [expr {0x4000 | $len}]]$value}
        s32 {return "\x80[binary format I $len]$value"}
        i8 {return "\xfe[binary format c $value]"}
        i16 {return "\xc0[binary format s $value]"}
        i24 {return "\xf0[string range [binary format i $value] 0 2]"}
        i32 {return "\xd0[binary format i $value]"}
        i64 {return "\xe0[binary format w $value]"}
        imm {return [binary format c [expr {0xf1 + $value}]]}
    }
}
proc ziplist {elements {long 0}} {
    set body ""
    set before 0
    set tail 10
    foreach {kind value} $elements {
        set tail [expr {10 + [string length $body]}]
        set element [ziplist_element $kind $value]
        set head [expr {$long || $before > 253 ? "\xfe[binary format i $before]" : [binary format c $before]}]
        append body $head $element
        set before [string length $head$element]
    }
    return [binary format iis [expr {11 + [string length $body]}] $tail [expr {[llength $elements] / 2}]]$body\xff
}
proc zipmap_length {len} {expr {$len < 254 ? [binary format c $len] : "\xfe[binary format i $len]"}}
# A zipmap of {field value unused …}.
proc zipmap {fields {count ""}} {
    if {$count eq ""} {set count [expr {[llength $fields] / 3}]}
    set out [binary format c $count]
    foreach {field value unused} $fields {
        append out [zipmap_length [string length $field]] $field [zipmap_length [string length $value]] \
            [binary format c $unused] $value [string repeat . $unused]
    }
    return $out\xff
}
# A score in the format of the oldest sorted sets.
proc text_score {text} {
    switch -exact -- $text {
        nan {return \xfd}
        inf {return \xfe}
        -inf {return \xff}
    }
    return [binary format c [string length $text]]$text
}

# The value as a payload; its checksum is not checked here.
proc restore_value {key type value {version 6}} {
    r restore $key 0 [binary format c $type]$value[binary format s $version][string repeat \x00 8] replace
}
proc assert_damaged {type value} {
    r set k old
    assert_error "ERR Bad data format" [list restore_value k $type $value]
    assert_equal old [r get k]
}

set ::all_kinds [list s6 a s6 "" s6 [string repeat b 63] s14 [string repeat c 64] s14 [string repeat d 300] s32 \
    [string repeat e 20000] s32 f \
    i8 -128 i8 127 i16 -32768 i16 300 i24 -8388608 i24 8388607 i32 -2147483648 i32 70000 i64 -9223372036854775808 i64\
    9223372036854775807 imm 0 imm 12 s6 g]
set ::all_values [lmap {kind value} $::all_kinds {set value}]

start_server {tags {dump}} {
    r debug set-skip-checksum-validation 1

    test "a wrong checksum is refused, none at all too; DEBUG SET-SKIP-CHECKSUM-VALIDATION takes it" {
        r set k v
        set payload [r dump k]
        r debug set-skip-checksum-validation 0
        foreach checksum [list [string repeat \x00 8] [string repeat \xff 8]] {
            assert_error "ERR DUMP payload version or checksum are wrong" \
                [list r restore k 0 [string range $payload 0 end-8]$checksum replace]
        }
        assert_equal OK [r restore k 0 $payload replace]
        r debug set-skip-checksum-validation 1
        assert_equal OK [r restore k 0 [string range $payload 0 end-8][string repeat \xff 8] replace]
        # Payloads that are too new or malformed are still rejected.
        assert_error "ERR DUMP payload version or checksum are wrong" {restore_value k 0 \x01v 9999}
        assert_error "ERR DUMP payload version or checksum are wrong" {r restore k 0 \x00\x00 replace}
    }

    test "a list of a ziplist: every kind of element" {
        foreach long {0 1} {
            restore_value k 10 [packed_string [ziplist $::all_kinds $long]]
            assert_equal $::all_values [r lrange k 0 -1]
        }
        restore_value k 10 [packed_string [ziplist {s6 12 imm 5}]]
        assert_equal {12 5} [r lrange k 0 -1]
    }

    test "the encoding depends on the form of the payload and the number of items, not on their size" {
        set long [string repeat x 100]
        set listpack "[binary format is [expr {7 + 2 + 103}] 2]\x00\x01\xe0\x64$long\x66\xff"
        foreach {type value encoding} [list \
            10 [ziplist {s6 a}] quicklist \
            12 [ziplist [list s14 $long imm 1]] listpack \
            13 [ziplist [list s6 f s14 $long]] listpack \
            9 [zipmap {f v 0}] listpack \
            9 [zipmap [list f $long 0]] hashtable \
            16 $listpack listpack \
            20 $listpack listpack] {
            restore_value k $type [packed_string $value]
            assert_equal $encoding [r object encoding k] "payload of type $type"
        }
        foreach {type count element} {13 513 s6 12 129 imm} {
            set elements {}
            for {set i 0} {$i < $count} {incr i} {lappend elements s6 m$i $element 1}
            restore_value k $type [packed_string [ziplist $elements]]
            assert_in [r object encoding k] {hashtable skiplist}
        }
        # With a field that expires at no time (-1).
        restore_value k 22 "\x01\x01f\x01v[string repeat \xff 8]" 80
        assert_equal hashtable [r object encoding k]
    }

    test "a list of many ziplists: nodes without elements are skipped" {
        restore_value k 14 \x03[packed_string [ziplist {s6 a imm 1}]][packed_string [ziplist {}]][packed_string \
            [ziplist {i16 300}]]
        assert_equal {a 1 300} [r lrange k 0 -1]
        assert_damaged 14 \x01[packed_string [ziplist {}]]
        assert_damaged 14 \x00
        # The same for the current format of lists.
        restore_value k 18 "\x02\x02\x07\x07\x00\x00\x00\x00\x00\xff\x01\x01a"
        assert_equal a [r lrange k 0 -1]
    }

    test "the oldest list, set and hash" {
        restore_value k 1 \x03\x01a\xc0\x05\x00
        assert_equal {a 5 {}} [r lrange k 0 -1]
        restore_value k 2 \x03\x01a\xc0\x05\x01b
        assert_equal {5 a b} [lsort [r smembers k]]
        restore_value k 4 \x02\x01f\x01v\x01g\xc0\x05
        assert_equal {f g} [lsort [r hkeys k]]
        assert_equal {v 5} [r hmget k f g]
    }

    test "a hash of a ziplist" {
        restore_value k 13 [packed_string [ziplist {s6 f s6 v imm 1 i16 300 s14 longer s6 ""}]]
        assert_equal {v 300 {}} [r hmget k f 1 longer]
        assert_equal 3 [r hlen k]
        assert_damaged 13 [packed_string [ziplist {s6 f}]]
        assert_damaged 13 [packed_string [ziplist {}]]
        assert_damaged 13 [packed_string [ziplist {s6 f s6 v s6 f s6 w}]]
    }

    test "a hash of a zipmap" {
        restore_value k 9 [packed_string [zipmap [list f v 0 g 12 3 [string repeat n 300] [string repeat w 254] 1]]]
        assert_equal [list v 12 [string repeat w 254]] [r hmget k f g [string repeat n 300]]
        assert_equal 3 [r hlen k]
        # The number of fields is not stored.
        restore_value k 9 [packed_string [zipmap {f v 0} 254]]
        assert_equal {f v} [r hgetall k]
        r config set loglevel verbose
        assert_damaged 9 [packed_string [zipmap {}]]
        assert [log_has "Zipmap integrity check failed."]
        assert_damaged 9 [packed_string [zipmap {f v 0 f w 0}]]
        # A length takes five bytes although one would be enough.
        assert_damaged 9 [packed_string "\x01\xfe\x01\0\0\0f\x01\0v\xff"]
        assert_damaged 9 [packed_string "\x01\x01f\xfe\x01\0\0\0\0v\xff"]
    }

    test "a sorted set of a ziplist with a score that is not a number is refused, with the reason" {
        set offset [log_size]
        assert_damaged 12 [packed_string [ziplist {s6 m s6 nan}]]
        assert [log_has "Zset ziplist with NAN score detected" $offset]
        assert_damaged 12 [packed_string [ziplist {s6 m s6 x}]]
        assert [log_has "Zset ziplist integrity check failed." $offset]
    }

    test "sorted sets of a ziplist, and with scores as text" {
        set scores {-inf a -3 b 0 c 0.5 d 2 e 3000000000 f inf g}
        restore_value k 12 [packed_string \
            [ziplist {s6 a s6 -inf s6 b i8 -3 s6 c imm 0 s6 d s6 0.5 s6 e imm 2 s6 f i64 3000000000 s6 g s6 inf}]]
        foreach {score member} $scores {assert_equal $score [r zscore k $member]}
        assert_equal 7 [r zcard k]
        set value \x07
        foreach {score member} $scores {append value [packed_string $member] [text_score $score]}
        restore_value k 3 $value
        foreach {score member} $scores {assert_equal $score [r zscore k $member]}
        assert_equal {a b c d e f g} [r zrange k 0 -1]
        restore_value k 3 \x01\x01a[text_score 1.7976931348623157e+308]
        assert_equal 1.7976931348623157e+308 [r zscore k a]
        assert_damaged 3 \x01\x01a[text_score nan]
        assert_damaged 12 [packed_string [ziplist {s6 a}]]
        assert_damaged 12 [packed_string [ziplist {s6 a imm 1 s6 a imm 2}]]
    }

    test "damage in old forms is refused" -needs {ours 1} {
        set good [ziplist {s6 a i16 300 imm 1}]
        foreach damage [list "" \xff [string range $good 0 8] [string range $good 0 end-1] $good. \
            [string replace $good 0 0 \x01] \
            [string replace $good 4 4 \x0a] [string replace $good 4 4 \xf0] [string replace $good 8 8 \x02]\
            [string replace $good 8 8 \x04] [string replace $good 10 10 \x01] \
            [string replace $good 11 11 \x3f] [string replace $good 11 11 \xc1] [string replace $good 11 11 \xff]\
            [string replace $good 13 13 \xfe] \
            [string replace $good 13 13 \x04] [string replace $good 14 14 \xe0] [string replace $good 11 11 \x80]\
            [string replace $good 11 11 \x40]] {
            assert_damaged 10 [packed_string $damage]
            assert_damaged 13 [packed_string $damage]
            assert_damaged 14 \x01[packed_string $damage]
        }
        set good [zipmap {f v 2 g w 0}]
        foreach damage [list "" \xff \x00 [string range $good 0 end-1] $good. [string replace $good 0 0 \x01] \
            [string replace $good 0 0 \x03] [string replace $good 1 1 \xff] \
            [string replace $good 1 1 \x20] [string replace $good 1 1 \xfe] [string replace $good 3 3 \xff]\
            [string replace $good 4 4 \xf0] \x01\x01f\xff \x01\x01f\x01\xff] {
            assert_damaged 9 [packed_string $damage]
        }
        foreach score [list \x01x \x00 \x05 \x051 ""] {assert_damaged 3 \x01\x01a$score}
    }

    test "random damage in old forms is refused or makes a value, never more" -needs {ours 1} {
        foreach {type value} [list 10 [packed_string [ziplist $::all_kinds]] 13 \
            [packed_string [ziplist {s6 f s6 v imm 1 i16 300}]] 12 [packed_string [ziplist {s6 a imm 1 s6 b s6 2.5}]] \
            14 \x02[packed_string [ziplist {s6 a imm 1}]][packed_string [ziplist {i16 300}]] 9\
            [packed_string [zipmap {f v 0 g 12 3}]] 3 \x02\x01a\x011\x01b\xfe] {
            for {set i 0} {$i < [scaled 200 10]} {incr i} {
                set bytes $value
                for {set j [randint 3]} {$j >= 0} {incr j -1} {
                    set at [randint [string length $bytes]]
                    set bytes [string replace $bytes $at $at [binary format c [randint 256]]]
                }
                if {![catch {restore_value k $type $bytes}]} {
                    set digest [r debug digest-value k]
                    r restore copy 0 [r dump k] replace
                    assert_equal $digest [r debug digest-value copy]
                }
            }
        }
        assert_equal PONG [r ping]
    }
}
