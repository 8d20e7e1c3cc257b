# DUMP and RESTORE.
# seconds: 3

# Values of every type and encoding, as commands that create the key k.
set ::values {
    string-empty {{set k ""}} string-int {{set k 123}} string-int16 {{set k -12345}} string-int32\
        {{set k 2147483647}} string-int64 {{set k 9223372036854775807}}
    string-embstr {{set k hello}} string-raw {{set k hello} {append k world}} string-zero-led {{set k 007}}
    list {{rpush k a b 1 -5 ""}} list-quicklist {{config set list-max-listpack-size 3} {rpush k a b c d e f 1 2 3 4 5}}
    set-intset {{sadd k 1 2 3 70000 -5}} set-listpack {{sadd k a b 3 ""}} set-hashtable\
        {{config set set-max-listpack-entries 2} {sadd k a b c d 5}}
    zset-listpack {{zadd k 1 a 2.5 b -inf c inf d 3 7}} zset-skiplist\
        {{config set zset-max-listpack-entries 2} {zadd k 1 a 2.5 b -inf c inf d 1e100 e 3 7}}
    hash-listpack {{hset k f v g 1 h ""}} hash-hashtable {{config set hash-max-listpack-entries 1} {hset k f v g 1 h x}}
    stream {{xadd k 1-1 a 1 b ""} {xadd k 1-5 a x b -70000} {xadd k 2-0 c d}} stream-empty \
        {{xgroup create k g 0 mkstream}}
    stream-nodes {{config set stream-node-max-entries 2} {xadd k 1-1 a 1} {xadd k 2-1 a 2} {xadd k 3-1 a 3}\
        {xadd k 4-1 b 4 c 5} {xadd k 5-1 a 6} {xdel k 2-1 5-1}}
    stream-groups {{xadd k 1-1 a 1} {xadd k 2-1 a 2} {xadd k 3-1 a 3} {xgroup create k g 0}\
        {xreadgroup group g c count 2 streams k >} {xgroup create k h 2-1 entriesread 2}
        {xreadgroup group g d count 1 streams k >} {xgroup createconsumer k h e} {xdel k 2-1}}
}
lappend ::values string-compressed [list [list set k [string repeat abcdefgh 200]]]
lappend ::values list-large-elements [list [list rpush k a [string repeat x 10000] [string repeat y 70000] b]]
lappend ::values hash-large-value [list [list hset k f [string repeat v 70000] g 1]]

proc reset_limits {} {
    foreach {name value} {list-max-listpack-size -2 stream-node-max-entries 100 set-max-listpack-entries 128\
        hash-max-listpack-entries 128 zset-max-listpack-entries 128} {
        r config set $name $value
    }
}
# For payloads without a valid checksum.
proc without_checksums {} {
    r debug set-skip-checksum-validation 1
    at_test_end {r debug set-skip-checksum-validation 0}
}
proc digest {key} {lindex [r debug digest-value $key] 0}
# Commands that read or change a stream in all ways. They may fail with an error reply.
proc use_stream {key} {
    set commands {{xinfo stream K full count 0} {xlen K} {xadd K * a b}\
        {xadd K nomkstream maxlen 3 18446744073709551615-18446744073709551615 a b} {xtrim K minid ~ 3} {xdel K 1-1 3-1}
        {xrange K - + count 3} {xrange K (1-1 3} {xtrim K maxlen 1} {xrange K - +} {xrevrange K + -}\
            {xread count 2 streams K 1} {xinfo groups K}}
    foreach group {g h} {
        lappend commands [list xpending K $group] [list xpending K $group - + 10] [list xinfo consumers K $group] \
            [list xreadgroup group $group z count 3 streams K >] \
            [list xreadgroup group $group c streams K 0] [list xautoclaim K $group z 0 0 count 2]\
            [list xclaim K $group z 0 1-1 2-1 force] [list xack K $group 1-1 2-1] \
            [list xgroup delconsumer K $group c] [list xgroup destroy K $group]
    }
    foreach command $commands {catch {r {*}[string map [list K $key] $command]}}
}

start_server {tags {dump}} {
    foreach {name commands} $::values {
        test "RESTORE-ASKING does what RESTORE does" {
        reset_limits
        r flushall
        r rpush source a b c
        set payload [r dump source]
        assert_typed +OK restore-asking k 0 $payload
        assert_equal {a b c} [r lrange k 0 -1]
        assert_error "BUSYKEY Target key name already exists." {r restore-asking k 0 $payload}
        assert_typed +OK restore-asking k 100000 $payload replace
        assert_range [r pttl k] 1 100000
        assert_error "ERR DUMP payload version or checksum are wrong" {r restore-asking other 0 x$payload}
        assert_equal 0 [r exists other]
    }

    test "DUMP and RESTORE give the same value again: $name" {
            r flushall
            foreach command $commands {r {*}$command}
            set digest [digest k]
            set encoding [r object encoding k]
            set payload [r dump k]
            assert_equal OK [r restore copy 0 $payload]
            assert_equal $digest [digest copy]
            if {$name ne "string-raw"} {assert_equal $encoding [r object encoding copy]}
            # Restored under other limits, the value takes the encoding for these limits.
            reset_limits
            assert_equal OK [r restore k 0 $payload replace]
            assert_equal $digest [digest k]
        }
    }

    test "the bytes are those of every Valkey" {
        r flushall
        r set s hello
        r set n 123
        r rpush l a b c
        r sadd si 1 2 3
        r hset h f v
        foreach {key bytes} {
            s "\x00\x05hello\x0b\x00\n\xadb\x05\x98\xab\xc9\x83"
            n "\x00\xc0\x7b\x0b\x00!=\xee\x92\xfd\xe5\x8e0"
            l "\x12\x01\x02\x10\x10\x00\x00\x00\x03\x00\x81a\x02\x81b\x02\x81c\x02\xff\x0b\x00\xa1\xc7\x04\x7fh\xac\xbb\x17"
            si "\x0b\x0e\x02\x00\x00\x00\x03\x00\x00\x00\x01\x00\x02\x00\x03\x00\x0b\x00\xcc\xdd\xe1\x91\x90\xf1\xa4\x92"
            h "\x10\r\r\x00\x00\x00\x02\x00\x81f\x02\x81v\x02\xff\x0b\x00I.\x807\xde\xcb\xe1\x14"
        } {assert_equal $bytes [r dump $key]}
        assert_typed nil$ dump nosuch
        arity_errors {dump {dump a b} restore {restore a 0}}
    }

    test "RESTORE: a key that is there, REPLACE" {
        r flushall
        r set k old
        r set other new
        set payload [r dump other]
        assert_error "BUSYKEY Target key name already exists." {r restore k 0 $payload}
        assert_equal old [r get k]
        r expire k 100
        assert_equal OK [r restore k 0 $payload replace]
        assert_equal new [r get k]
        assert_equal -1 [r ttl k]
    }

    test "RESTORE: relative and absolute times" {
        r flushall
        r set s v
        set payload [r dump s]
        r restore a 100000 $payload
        assert_range [r pttl a] 90000 100000
        r restore b [expr {[clock milliseconds] + 100000}] $payload absttl
        assert_range [r pttl b] 90000 101000
        r restore c 0 $payload
        assert_equal -1 [r pttl c]
        assert_equal OK [r restore d 1 $payload absttl]
        assert_equal 0 [r exists d]
        assert_equal OK [r restore c 1 $payload absttl replace]
        assert_equal 0 [r exists c]
    }

    test "RESTORE: IDLETIME and FREQ, of which the one that maxmemory-policy does not use is ignored" {
        r flushall
        r set s v
        set payload [r dump s]
        r restore a 0 $payload idletime 1000
        assert_range [r object idletime a] 999 1010
        r restore a 0 $payload replace freq 100
        assert_range [r object idletime a] 0 10
        r config set maxmemory-policy allkeys-lfu
        r restore b 0 $payload freq 100
        assert_range [r object freq b] 95 100
        r restore b 0 $payload replace idletime 1000
        assert_equal 5 [r object freq b]
        r config set maxmemory-policy noeviction
    }

    test "dump_payload_sanitizations counts the listpacks and intsets that RESTORE has checked" {
        r flushall
        with_config {list-max-listpack-size 2 stream-node-max-entries 2} {
            r rpush list 1 2 3 4 5 6
            foreach id {1 2 3 4} {r xadd stream $id-1 f v}
        }
        r hset hash f v
        r zadd zset 1 a
        r sadd set a
        r sadd intset 1
        r set string v
        for {set i 0} {$i < 1000} {incr i} {lappend members member:$i}
        r sadd table {*}$members
        foreach {key count} {list 3 stream 2 hash 1 zset 1 set 1 intset 1 string 0 table 0} {
            r config resetstat
            r restore copy 0 [r dump $key] replace
            assert_equal [list $key $count] [list $key [info_field stats dump_payload_sanitizations]]
        }
    }

    test "RESTORE: invalid arguments" {
        r flushall
        r set s v
        replies {
            {restore t 0 xxx} "-ERR DUMP payload version or checksum are wrong"
            {restore t -1 xxx} "-ERR Invalid TTL value, must be >= 0"
            {restore t a xxx} "-ERR value is not an integer or out of range"
            {restore t 0 xxx foo} "-ERR syntax error"
            {restore t 0 xxx idletime} "-ERR syntax error"
            {restore t 0 xxx idletime -1} "-ERR Invalid IDLETIME value, must be >= 0"
            {restore t 0 xxx idletime a} "-ERR value is not an integer or out of range"
            {restore t 0 xxx freq 256} "-ERR Invalid FREQ value, must be >= 0 and <= 255"
            {restore t 0 xxx freq -1} "-ERR Invalid FREQ value, must be >= 0 and <= 255"
            {restore t 0 xxx idletime 1 freq 1} "-ERR syntax error"
            {restore s 0 xxx} "-BUSYKEY Target key name already exists."
        }
    }

    test "RESTORE takes versions up to ours, but for those of other products" -needs {ours 1} {
        without_checksums
        r flushall
        foreach {version good} {0 0 1 1 6 1 11 1 12 0 79 0 80 1 81 0 65535 0} {
            set bytes "\x00\x01x[binary format s $version]"
            set got [catch {r restore k$version 0 "$bytes[string repeat \x00 8]"} error]
            if {$got == $good} {fail "version $version: $error"}
        }
    }

    test "a damaged payload is refused, and the old value stays" -needs {ours 1} {
        without_checksums
        r flushall
        r set k old
        foreach body {
            "\x00" "\x00\x05abc" "\x00\xc3\x05\x10abc" "\x00\xc4" "\x63\x01a" "\x02\x00" "\x02\x02\x01a\x01a"\
                "\x02\x81\xff\xff\xff\xff\xff\xff\xff\xff"
            "\x04\x00" "\x04\x01\x01f" "\x04\x02\x01f\x01v\x01f\x01v" "\x0b\x03abc"\
                "\x10\x07\x07\x00\x00\x00\x00\x00\xff" "\x12\x00" "\x12\x01\x03\x01a"
            "\x10\x0a\x0a\x00\x00\x00\x01\x00\x81f\x02\xff" "\x14\x0d\x0d\x00\x00\x00\x02\x00\x81f\x02\x81f\x02\xff"
            "\x0b\x0c\x02\x00\x00\x00\x02\x00\x00\x00\x05\x00\x01\x00"\
                "\x00\xc3\x04\x81\x00\x00\x00\xff\xff\xff\xff\xff1234" "\x05\x01\x01a\x00\x00\x00\x00\x00\x00\xf8\x7f"\
                "\x05\x00" "\x11\x0d\x0d\x00\x00\x00\x02\x00\x81f\x02\x81g\x02\xff"
            "\x15\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00" "\x15\x01\x03abc\x00"\
                "\x13\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01"\
                "\x0f\x00\x00\x00\x00\x02\x01g\x00\x00\x00\x00\x01g\x00\x00\x00\x00"
            "" "\xff"
        } {
            assert_error "ERR Bad data format" [list r restore k 0 "$body\x0b\x00[string repeat \x00 8]" replace]
            assert_equal old [r get k]
        }
    }

    test "RESTORE logs the defect of a payload at loglevel verbose" {
        without_checksums
        r config set loglevel verbose
        r del k
        foreach {body line} {
            "\x0b\x0e\x02\x00\x00\x00\x03\x00\x00\x00\x01\x00\x03\x00\x02\x00" "Intset integrity check failed."
            "\x10\x0a\x0a\x00\x00\x00\x01\x00\x81f\x02\xff" "Hash listpack integrity check failed."
            "\x11\x0a\x0a\x00\x00\x00\x01\x00\x81f\x02\xff" "Zset listpack integrity check failed."
            "\x14\x0d\x0d\x00\x00\x00\x02\x00\x81f\x02\x81f\x02\xff" "Set listpack integrity check failed."
            "\x0d\x0b\x0b\x00\x00\x00\x0a\x00\x00\x00\x02\x00\xff" "Hash ziplist integrity check failed."
            "\x0c\x0b\x0b\x00\x00\x00\x0a\x00\x00\x00\x02\x00\xff" "Zset ziplist integrity check failed."
            "\x0a\x0b\x0b\x00\x00\x00\x0a\x00\x00\x00\x02\x00\xff" "List ziplist integrity check failed."
            "\x0e\x01\x0b\x0b\x00\x00\x00\x0a\x00\x00\x00\x02\x00\xff" "Ziplist integrity check failed."
            "\x09\x03\x02\x01a" "Zipmap integrity check failed."
            "\x12\x01\x09\x00" "Quicklist integrity check failed."
            "\x02\x02\x01a\x01a" "Duplicate set members detected"
            "\x04\x02\x01f\x01v\x01f\x01v" "Hash with dup elements"
            "\x03\x02\x01a\x011\x01a\x012" "Duplicate zset fields detected"
            "\x03\x01\x01a\xfd" "Zset with NAN score detected"
            "\x00\xc3\x04\x0aabcd" "Invalid LZF compressed string"
            "\x00\xc7" "Unknown RDB string encoding type 7"
            "\x00\x84\x01" "Unknown length encoding 2"
        } {
            set from [log_size]
            assert_error "ERR Bad data format" {r restore k 0 "$body\x0b\x00[string repeat \x00 8]"}
            assert_match "*Internal error in RDB reading offset *-> $line*" [log_text $from] $line
        }
    }

    test "payloads with random damage are refused or make a value, never more" -needs {ours 1} {
        without_checksums
        r flushall
        foreach {name commands} $::values {
            r del k
            foreach command $commands {r {*}$command}
            set body [string range [r dump k] 0 end-10]
            if {[string length $body] > 2000} continue
            for {set i 0} {$i < [scaled 60 5]} {incr i} {
                set bytes $body
                for {set j [randint 3]} {$j >= 0} {incr j -1} {
                    set at [randint [string length $bytes]]
                    set bytes [string replace $bytes $at $at [binary format c [randint 256]]]
                }
                if {[randint 4] == 0} {set bytes [string range $bytes 0 [randint [string length $bytes]]]}
                if {![catch {r restore d 0 "$bytes\x0b\x00[string repeat \x00 8]" replace}]} {
                    digest d
                    r restore e 0 [r dump d] replace
                    assert_equal [digest d] [digest e]
                    if {[r type e] eq "stream"} {
                        use_stream e
                        r restore e 0 [r dump e] replace
                    }
                }
            }
        }
        reset_limits
        assert_equal PONG [r ping]
    }

    test "events of RESTORE" {
        r flushall
        r set s v
        set payload [r dump s]
        set c [new_client]
        $c psubscribe __keyevent*
        r config set notify-keyspace-events EAn
        r restore k 0 $payload
        r restore k 0 $payload replace
        r restore k 1 $payload replace absttl
        r config set notify-keyspace-events ""
        foreach event {new restore new restore del} {assert_equal __keyevent@0__:$event [lindex [$c -read] 2]}
    }

    test "rdbcompression no: nothing is compressed" {
        r flushall
        r set k [string repeat a 1000]
        assert_lessthan [string length [r dump k]] 100
        r config set rdbcompression no
        assert_morethan [string length [r dump k]] 1000
        r config set rdbcompression yes
    }
}
