# Peers that rewrite bytes which they have announced, while the server, or the tool, works on them. What was checked is
# what is used: the server copies a request before it looks at it (src/net/rdma/buffer.h). The cases are made by
# build/programs/rdma-rewrite. seconds: 90

foreach file [lsort [glob -directory [file join $root tests integration command-table] *.tcl]] {source $file}

# A word of a corpus: bytes that separate or escape are written as %xx.
proc corpus_word {word} {
    if {$word eq ""} {return %e}
    set out ""
    foreach char [split [encoding convertto utf-8 $word] ""] {
        append out [expr {[string is alnum -strict $char] || $char in {* - + : . _ $ ( [ = ~} ?
            $char : [format %%%02x [scan $char %c]]}]
    }
    return $out
}

# Commands that are not on data, each with arguments that it takes. Those that end or block the server or the connection
# are left out.
set other_commands {
    {ping x} {echo x} {select 0} {dbsize} {time} {lastsave} {info server} {command info get}
    {command getkeys mset a b c d}
    {command list filterby pattern x*} {command docs get} {config get max*} {config set slowlog-max-len 10}
    {acl whoami} {acl setuser u on >p ~pub:* +get} {acl getuser u} {acl dryrun u get pub:k} {acl deluser u}
    {acl cat read}
    {acl genpass 64} {acl log 5} {client id} {client info} {client list type normal} {client setname name}
    {client setinfo lib-name x} {client no-evict off} {client tracking on bcast prefix a: prefix b:}
    {client tracking off} {client caching yes} {client kill id 999999} {client unblock 999999} {hello 2 setname x}
    {auth default x} {publish channel message} {spublish channel message} {pubsub channels a*} {pubsub numsub a b}
    {eval {return redis.call('set', KEYS[1], ARGV[1])} 1 k v} {eval {return cjson.encode({1, 2})} 0}
    {evalsha 0123456789012345678901234567890123456789 0} {script load {return 1}} {script exists abc} {script flush}
    {function load replace {#!lua name=lib
redis.register_function('f', function(keys, args) return args[1] end)}} {fcall f 0 x} {function list libraryname l*}
    {function dump} {function delete lib} {multi} {set k v} {discard} {multi} {incr n} {exec} {watch a b} {unwatch}
    {object help} {latency doctor} {memory usage k samples 5} {memory stats} {slowlog get 2} {commandlog get 2 slow}
    {cluster info} {cluster keyslot abc} {reset} {wait 0 1} {swapdb 0 1} {flushdb async} {lolwut version 5}
    {blob.get k} {blob.set k v} {blob.info k crc} {blob.hello 00ff} {blob.get k 1 4096 300}
    {blob.rdma_get k 1 2 3 4 5 6}
    {blob.set k 10 1 4096 10 ex 5} {blob.rdma_set k 10 1 4096 10 nx} {blob.tcp_set k v} {blob.tcp_get k}
    {module list} {replconf capa eof} {asking} {readonly} {debug sleep 0}
}

proc corpus_write {name} {
    set file [open $name w]
    dict for {row description} $::row {
        foreach command [concat [dict get $description given] [list [dict get $description call]]] {
            puts $file [join [lmap word $command {corpus_word $word}]]
        }
    }
    foreach command $::other_commands {puts $file [join [lmap word $command {corpus_word $word}]]}
    # Values of all encodings, and those that change it.
    foreach size {1 11 19 20 64 65 500 9000} {
        foreach command {{set k} {append k} {rpush l} {sadd s} {hset h f} {zadd z 1} {pfadd p} {lpush m 1 2} {xadd x *
            f}} {
            puts $file [join [list {*}$command [string repeat 7 $size]]]
            puts $file [join [list {*}$command [string repeat m $size]]]
        }
    }
    close $file
}

proc rewrite {args} {
    set got [run -timeout 170 {*}$::opt(launcher) [tool rdma-rewrite] --host $::opt(rdma_host) --port [srv port] \
        {*}$args]
    if {[dict get $got code] ne 0} {fail "[dict get $got out][dict get $got err]"}
    return [dict get $got out]
}

# The data are what the server would load from its append-only file, and each key is where it is looked for.
proc assert_consistent {} {
    set digest [r debug digest]
    foreach key [r keys *] {if {![r exists $key]} {fail "KEYS has $key, EXISTS has not"}}
    assert_equal [llength [r keys *]] [r dbsize]
    r debug loadaof
    assert_equal $digest [r debug digest] "from the append-only file"
    r debug reload
    assert_equal $digest [r debug digest] "from the RDB file"
}

foreach threads {1 3} {
    set name [expr {$threads > 1 ? ", with I/O threads" : ""}]
    set options [list io-threads $threads appendonly yes appendfsync no save "" enable-debug-command yes]

    start_server [list overrides $options] {
        test "requests of every command are rewritten while the server executes them$name" -timeout 175 {
            set corpus [file join [srv dir] corpus]
            corpus_write $corpus
            set seconds [expr {$::test_scale > 1 ? 2 : 10}]
            puts [string trim [rewrite --corpus $corpus --seconds $seconds --seed $::opt(seed)]]
            assert_equal PONG [r ping]
            r flushall
        }

        test "a user gets only the keys that the permissions were checked for$name" {
            r set sec:k TOPSECRET
            r set pub:k hello
            r acl setuser u on >p resetkeys ~pub:* nocommands +get +mget
            set tries [scaled 1500 100]
            set replies [rewrite --auth "auth u p" --race $tries get "{pub|sec}:k"]
            append replies [rewrite --auth "auth u p" --race $tries mget {*}[lrepeat 200 pub:k] "{pub|sec}:k"]
            assert_not_match *TOPSECRET* $replies
            assert_match {*hello*} $replies
            r acl deluser u
            r flushall
        }

        test "a key is where its name is looked for$name" {
            rewrite --race [scaled 1500 100] set "key:#:{a|b}" v
            assert_consistent
            r flushall
        }

        test "what is propagated is what was executed$name" {
            rewrite --race [scaled 1500 100] set key:# "{aaaaaaaa|bbbbbbbb}"
            foreach command {{append %s} {rpush %s} {sadd %s} {zadd %s 1} {hset %s f} {setrange %s 3}} {
                rewrite --race [scaled 200 20] {*}[string map [list %s t:[lindex $command 0]:#] $command] "{1234|5678}"
            }
            assert_consistent
            r flushall
        }

        test "a script has the digest of the text that was compiled$name" {
            rewrite --race [scaled 500 50] eval "return'{a|b}#'" 0
            for {set i 0} {$i < [scaled 500 50]} {incr i} {
                foreach letter {a b} {
                    set text "return'$letter[format %06d $i]'"
                    set got [r -typed evalsha [r eval {return redis.sha1hex(ARGV[1])} 0 $text] 0]
                    if {[string match -NOSCRIPT* $got]} continue
                    assert_equal "\$$letter[format %06d $i]" $got
                }
            }
            r script flush
        }
    }

    start_server [list overrides [list io-threads $threads requirepass secret] auth secret] {
        test "an inline request gets quotes after it was announced, before AUTH$name" {
            rewrite --inline [scaled 300 50]
            assert_equal PONG [r ping]
        }
    }
}

# --- A hostile server ---

# Runs a script with the port of a server that rewrites its replies. `replies`: pairs of a word of the request and the
# reply.
proc hostile_server {replies script} {
    set port [free_port]
    set name [file join $::unit_dir replies]
    set file [open $name w]
    foreach {word reply} $replies {
        puts $file "$word [join [lmap char [split $reply ""] {format %%%02x [scan $char %c]}] ""]"
    }
    close $file
    lassign [open_beside {*}$::opt(launcher) [tool rdma-rewrite] --host $::opt(rdma_host) --port $port --serve $name \
        --seed $::opt(seed)] pid chan
    assert_equal serving [line_of $chan rdma-rewrite]
    uplevel 1 [list set port $port]
    uplevel 1 $script
    kill_process KILL $pid
}

# The replies of every kind, long and short, one in another.
proc replies_of_all_kinds {} {
    set text [string repeat "text " 500]
    set long [string repeat v 20000]
    set out {}
    foreach reply [list "+OK\r\n" "-ERR no\r\n" ":12\r\n" "\$-1\r\n" "*-1\r\n" "\$5\r\nhello\r\n" \
        "\$2500\r\n$text\r\n" "\$20000\r\n$long\r\n" "*2\r\n\$1\r\n0\r\n*3\r\n\$1\r\na\r\n\$1\r\nb\r\n\$3\r\nabc\r\n" \
        "*3\r\n*2\r\n:1\r\n:2\r\n*1\r\n\$3\r\nabc\r\n-ERR x\r\n" "%1\r\n+a\r\n:1\r\n" "~2\r\n:1\r\n:2\r\n" ",1.5\r\n" \
        "#t\r\n" "_\r\n" "=8\r\ntxt:text\r\n" "(123456789012345678901234567890\r\n" \
        "*12\r\n[string repeat ":7\r\n" 12]"] {
        lappend out * $reply
    }
    return $out
}

# A tool may fail with a message, or wait for the rest of a reply until it is ended (124). It may not crash: `timeout`
# then returns 128 and the number of the signal.
proc assert_no_crash {got} {
    if {[dict get $got code] >= 128} {
        fail "it ended with [dict get $got code]: [dict get $got out][dict get $got err]"
    }
}

test "valkey-cli and valkey-benchmark survive a server that rewrites its replies" -timeout 175 {
    set cli [tool valkey-cli]
    set bench [tool valkey-benchmark]
    hostile_server [replies_of_all_kinds] {
        foreach arguments {{-r 300 get k} {-3 -r 300 hgetall h} {-r 100 --csv lrange l 0 -1} {--json -r 100 smembers s}
            {--scan} {--bigkeys} {--memkeys} {--hotkeys} {-r 20 info} {-r 20 cluster slots} {--latency}
            {--eval /dev/null} {--functions-rdb -} {--rdb -}} {
            assert_no_crash [run {*}$::opt(launcher) timeout 3 $cli --rdma -h $::opt(rdma_host) -p $port {*}$arguments]
        }
        foreach arguments {{-t get,set -n 5000 -c 4 -d 100} {-t get,lrange_100 -n 2000 -c 10 -P 8} {-3 -n 1000 info}} {
            assert_no_crash [run {*}$::opt(launcher) timeout 3 $bench --rdma -h $::opt(rdma_host) -p $port -q \
                {*}$arguments]
        }
    }
}

test "libvalkeyrdma shows bytes that a server cannot rewrite" {
    hostile_server {* "$26\r\nabcdefghijklmnopqrstuvwxyz\r\n"} {
        set got [run -timeout 60 {*}$::opt(launcher) [tool rdma-client] steady $::opt(rdma_host) $port \
            [scaled 3000 100]]
        assert_equal {0 {}} [list [dict get $got code] [dict get $got err]]
    }
}

start_server {overrides {rdma-replication yes repl-timeout 5 save ""}} {
    test "a replica survives a primary that rewrites its stream" -timeout 120 {
        set rdb [file join [srv dir] dump.rdb]
        r set k v
        r save
        set data [file_bytes $rdb]
        set id [string repeat 1234567890 4]
        set stream "*3\r\n\$3\r\nSET\r\n\$3\r\nkey\r\n\$5\r\nvalue\r\n*4\r\n\$4\r\nHSET\r\n\$1\r\nh\r\n\$2\r\nf1\r\n\$19\
            \r\n1234567890123456789\r\n"
        set stream [string map {" \r" "\r"} $stream]
        hostile_server [list PSYNC "+FULLRESYNC $id 0\r\n\$[string length $data]\r\n$data$stream$stream" PSYNC \
            "+CONTINUE $id\r\n$stream" PING "+PONG\r\n" REPLCONF "+OK\r\n" ACK $stream * "+OK\r\n"] {
            r replicaof $::opt(rdma_host) $port
            wait_for_condition 60000 {[regexp -all {sync started} [log_text 0]] >= [scaled 4 2]}
            r replicaof no one
            assert_equal PONG [r ping]
        }
    }
}
