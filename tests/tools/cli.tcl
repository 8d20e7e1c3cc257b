# valkey-cli: one command after another, its options, its output, its exit codes. seconds: 21

# TOOLS=/usr/bin runs them with the tools of that directory: what these tests pin is what Valkey's own tools do.
set cli [file join [expr {[info exists ::env(TOOLS)] ? $::env(TOOLS) : "$::root/src"}] valkey-cli]

# Runs the cli against the server of the suite: {code out err}.
proc cli {args} {
    set got [run $::cli -h [srv host] -p [srv port] {*}$args]
    return [list [dict get $got code] [dict get $got out] [dict get $got err]]
}
proc cli_in {stdin args} {
    set got [run -stdin $stdin $::cli -h [srv host] -p [srv port] {*}$args]
    return [list [dict get $got code] [dict get $got out] [dict get $got err]]
}
# What a command prints, which is to succeed without a word on standard error.
proc cli_out {args} {
    lassign [cli {*}$args] code out err
    assert_equal {0 {}} [list $code $err] $args
    return $out
}

# A server that answers with the given replies.
proc canned_start {} {
    set file [file join $::unit_dir canned.port]
    file delete $file
    set handle [spawn [info nameofexecutable] [file join $::root tests programs canned-replies.tcl] $file]
    wait_for_condition 10000 {[file exists $file]}
    return [list $handle [file_bytes $file]]
}

# A reply, and how it is shown: --no-raw --raw --csv --json --quoted-json.
set shown_replies {
    {+OK\r\n}
        "OK\n" "OK\n" "\"OK\"\n" "\"OK\"\n" "\"OK\"\n"
    {-ERR bad thing\r\n}
        "(error) ERR bad thing\n" "ERR bad thing\n\n" "ERROR,\"ERR bad thing\"\n" "error:\"ERR bad thing\"\n"\
            "error:\"ERR bad thing\"\n"
    {:42\r\n}
        "(integer) 42\n" "42\n" "42\n" "42\n" "42\n"
    {:-1\r\n}
        "(integer) -1\n" "-1\n" "-1\n" "-1\n" "-1\n"
    {$5\r\nhello\r\n}
        "\"hello\"\n" "hello\n" "\"hello\"\n" "\"hello\"\n" "\"hello\"\n"
    {$0\r\n\r\n}
        "\"\"\n" "\n" "\"\"\n" "\"\"\n" "\"\"\n"
    {$-1\r\n}
        "(nil)\n" "\n" "NULL\n" "null\n" "null\n"
    {*-1\r\n}
        "(nil)\n" "\n" "NULL\n" "null\n" "null\n"
    {*0\r\n}
        "(empty array)\n" "\n" "\n" "\[\]\n" "\[\]\n"
    {$14\r\na"b\\c\nd\r\t\x07\x08\x01\xff\xc3\r\n}
        "\"a\\\"b\\\\c\\nd\\r\\t\\a\\b\\x01\\xff\\xc3\"\n" "a\"b\\c\nd\r\t\x07\x08\x01\xff\xc3\n"\
            "\"a\\\"b\\\\c\\nd\\r\\t\\a\\b\\x01\\xff\\xc3\"\n" "\"a\\\"b\\\\c\\nd\\r\\t\\u0007\\b\\u0001\xff\xc3\"\n"\
            "\"a\\\\\"b\\\\\\\\c\\\\nd\\\\r\\\\t\\\\a\\\\b\\\\x01\\\\xff\\\\xc3\"\n"
    {*3\r\n$1\r\na\r\n:2\r\n$-1\r\n}
        "1) \"a\"\n2) (integer) 2\n3) (nil)\n" "a\n2\n\n" "\"a\",2,NULL\n" "\[\"a\",2,null\]\n" "\[\"a\",2,null\]\n"
    {*2\r\n*2\r\n$1\r\na\r\n*1\r\n:1\r\n*0\r\n}
        "1) 1) \"a\"\n   2) 1) (integer) 1\n2) (empty array)\n" "a\n1\n\n" "\"a\",1,\n" "\[\[\"a\",\[1\]\],\[\]\]\n"\
            "\[\[\"a\",\[1\]\],\[\]\]\n"
    {*11\r\n:1\r\n:2\r\n:3\r\n:4\r\n:5\r\n:6\r\n:7\r\n:8\r\n:9\r\n*2\r\n:10\r\n:11\r\n*1\r\n*1\r\n:5\r\n}
        " 1) (integer) 1\n 2) (integer) 2\n 3) (integer) 3\n 4) (integer) 4\n 5) (integer) 5\n 6) (integer) 6\n 7)\
            (integer) 7\n 8) (integer) 8\n 9) (integer) 9\n10) 1) (integer) 10\n    2) (integer) 11\n11) 1) 1)\
            (integer) 5\n" "1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n11\n5\n" "1,2,3,4,5,6,7,8,9,10,11,5\n"\
            "\[1,2,3,4,5,6,7,8,9,\[10,11\],\[\[5\]\]\]\n" "\[1,2,3,4,5,6,7,8,9,\[10,11\],\[\[5\]\]\]\n"
    {_\r\n}
        "(nil)\n" "\n" "NULL\n" "null\n" "null\n"
    {,1.5\r\n}
        "(double) 1.5\n" "1.5\n" "1.5\n" "1.5\n" "1.5\n"
    {,inf\r\n}
        "(double) inf\n" "inf\n" "inf\n" "inf\n" "inf\n"
    {,-inf\r\n}
        "(double) -inf\n" "-inf\n" "-inf\n" "-inf\n" "-inf\n"
    {,nan\r\n}
        "(double) nan\n" "nan\n" "nan\n" "nan\n" "nan\n"
    {,3.0000000000000000001\r\n}
        "(double) 3.0000000000000000001\n" "3.0000000000000000001\n" "3.0000000000000000001\n"\
            "3.0000000000000000001\n" "3.0000000000000000001\n"
    {,1e100\r\n}
        "(double) 1e100\n" "1e100\n" "1e100\n" "1e100\n" "1e100\n"
    {#t\r\n}
        "(true)\n" "(true)\n" "true\n" "true\n" "true\n"
    {#f\r\n}
        "(false)\n" "(false)\n" "false\n" "false\n" "false\n"
    {(1234567890123456789012345678901234567890\r\n}
        "(big number) 1234567890123456789012345678901234567890\n" "1234567890123456789012345678901234567890\n"\
            "1234567890123456789012345678901234567890\n" "1234567890123456789012345678901234567890\n"\
            "1234567890123456789012345678901234567890\n"
    {=10\r\ntxt:line1\n\r\n}
        "line1\n\n" "line1\n\n" "\"line1\\n\"\n" "\"line1\\n\"\n" "\"line1\\\\n\"\n"
    {=8\r\nmkd:"a"\n\r\n}
        "\"a\"\n\n" "\"a\"\n\n" "\"\\\"a\\\"\\n\"\n" "\"\\\"a\\\"\\n\"\n" "\"\\\\\"a\\\\\"\\\\n\"\n"
    {%2\r\n$1\r\na\r\n:1\r\n$1\r\nb\r\n*2\r\n:1\r\n:2\r\n}
        "1# \"a\" => (integer) 1\n2# \"b\" => \n   1) (integer) 1\n   2) (integer) 2\n" "a 1\nb 1\n2\n"\
            "\"a\",1,\"b\",1,2\n" "\{\"a\":1,\"b\":\[1,2\]\}\n" "\{\"a\":1,\"b\":\[1,2\]\}\n"
    {%1\r\n$1\r\na\r\n%1\r\n+b\r\n%0\r\n}
        "1# \"a\" => 1# b => (empty hash)\n" "a b \n" "\"a\",\"b\",\n" "\{\"a\":\{\"b\":\{\}\}\}\n"\
            "\{\"a\":\{\"b\":\{\}\}\}\n"
    {%0\r\n}
        "(empty hash)\n" "\n" "\n" "\{\}\n" "\{\}\n"
    {~3\r\n:1\r\n$1\r\nx\r\n#t\r\n}
        "1~ (integer) 1\n2~ \"x\"\n3~ (true)\n" "1\nx\n(true)\n" "1,\"x\",true\n" "\[1,\"x\",true\]\n"\
            "\[1,\"x\",true\]\n"
    {~0\r\n}
        "(empty set)\n" "\n" "\n" "\[\]\n" "\[\]\n"
    {%3\r\n:1\r\n:2\r\n,1.5\r\n#f\r\n_\r\n*1\r\n_\r\n}
        "1# (integer) 1 => (integer) 2\n2# (double) 1.5 => (false)\n3# (nil) => 1) (nil)\n" "1 2\n1.5 (false)\n \n"\
            "1,2,1.5,false,NULL,NULL\n" "\{\"1\":2,\"1.5\":false,\"null\":\[null\]\}\n"\
            "\{\"1\":2,\"1.5\":false,\"null\":\[null\]\}\n"
    {%1\r\n*1\r\n:1\r\n:3\r\n}
        "1# 1) (integer) 1 => (integer) 3\n" "1 3\n" "1,3\n" "\{\"\[1\]\":3\}\n" "\{\"\[1\]\":3\}\n"
    {*3\r\n+OK\r\n-ERR inner\r\n_\r\n}
        "1) OK\n2) (error) ERR inner\n3) (nil)\n" "OK\nERR inner\n\n\n" "\"OK\",ERROR,\"ERR inner\",NULL\n"\
            "\[\"OK\",error:\"ERR inner\",null\]\n" "\[\"OK\",error:\"ERR inner\",null\]\n"
    {>2\r\n+push\r\n:1\r\n+OK\r\n}
        "OK\n" "OK\n" "\"OK\"\n" "\"OK\"\n" "\"OK\"\n"
    {|1\r\n+attr\r\n:1\r\n+OK\r\n}
        "OK\n" "OK\n" "\"OK\"\n" "\"OK\"\n" "\"OK\"\n"
    {|1\r\n+attr\r\n:1\r\n*1\r\n|1\r\n+x\r\n:9\r\n:2\r\n}
        "1) (integer) 2\n" "2\n" "2\n" "\[2\]\n" "\[2\]\n"
    {*2\r\n,1.25\r\n(99\r\n}
        "1) (double) 1.25\n2) (big number) 99\n" "1.25\n99\n" "1.25,99\n" "\[1.25,99\]\n" "\[1.25,99\]\n"
    {!5\r\nERR x\r\n}
        "(error) ERR x\n" "ERR x\n\n" "ERROR,\"ERR x\"\n" "error:\"ERR x\"\n" "error:\"ERR x\"\n"
    {$9\r\nh\xc3\xa9llo \x00x\r\n}
        "\"h\\xc3\\xa9llo \\x00x\"\n" "h\xc3\xa9llo \x00x\n" "\"h\\xc3\\xa9llo \\x00x\"\n"\
            "\"h\xc3\xa9llo \\u0000x\"\n" "\"h\\\\xc3\\\\xa9llo \\\\x00x\"\n"
    {+with "quotes" and \\ \r\n}
        "with \"quotes\" and \\ \n" "with \"quotes\" and \\ \n" "\"with \\\"quotes\\\" and \\\\ \"\n"\
            "\"with \\\"quotes\\\" and \\\\ \"\n" "\"with \\\\\"quotes\\\\\" and \\\\\\\\ \"\n"
    {*1\r\n$11\r\nmulti\nline\n\r\n}
        "1) \"multi\\nline\\n\"\n" "multi\nline\n\n" "\"multi\\nline\\n\"\n" "\[\"multi\\nline\\n\"\]\n"\
            "\[\"multi\\\\nline\\\\n\"\]\n"
    {*2\r\n$3\r\na,b\r\n$3\r\na"b\r\n}
        "1) \"a,b\"\n2) \"a\\\"b\"\n" "a,b\na\"b\n" "\"a,b\",\"a\\\"b\"\n" "\[\"a,b\",\"a\\\"b\"\]\n"\
            "\[\"a,b\",\"a\\\\\"b\"\]\n"
    {$9\r\n\xe2\x82\xac\x7f\x1b\x0c\x0b"/\r\n}
        "\"\\xe2\\x82\\xac\\x7f\\x1b\\x0c\\x0b\\\"/\"\n" "\xe2\x82\xac\x7f\x1b\x0c\x0b\"/\n"\
            "\"\\xe2\\x82\\xac\\x7f\\x1b\\x0c\\x0b\\\"/\"\n" "\"\xe2\x82\xac\x7f\\u001b\\f\\u000b\\\"/\"\n"\
            "\"\\\\xe2\\\\x82\\\\xac\\\\x7f\\\\x1b\\\\x0c\\\\x0b\\\\\"/\"\n"
    {%12\r\n:1\r\n:1\r\n:2\r\n:2\r\n:3\r\n:3\r\n:4\r\n:4\r\n:5\r\n:5\r\n:6\r\n:6\r\n:7\r\n:7\r\n:8\r\n:8\r\n:9\r\n:9\r\n:10\r\n*2\r\n:1\r\n:2\r\n:11\r\n:11\r\n:12\r\n~2\r\n:1\r\n:2\r\n}
        " 1# (integer) 1 => (integer) 1\n 2# (integer) 2 => (integer) 2\n 3# (integer) 3 => (integer) 3\n 4# (integer) 4 => (integer) 4\n 5# (integer) 5 => (integer) 5\n 6# (integer) 6 => (integer) 6\n 7# (integer) 7 => (integer) 7\n 8# (integer) 8 => (integer) 8\n 9# (integer) 9 => (integer) 9\n10# (integer) 10 => \n    1) (integer) 1\n    2) (integer) 2\n11# (integer) 11 => (integer) 11\n12# (integer) 12 => \n    1~ (integer) 1\n    2~ (integer) 2\n" "1 1\n2 2\n3 3\n4 4\n5 5\n6 6\n7 7\n8 8\n9 9\n10 1\n2\n11 11\n12 1\n2\n" "1,1,2,2,3,3,4,4,5,5,6,6,7,7,8,8,9,9,10,1,2,11,11,12,1,2\n" "\{\"1\":1,\"2\":2,\"3\":3,\"4\":4,\"5\":5,\"6\":6,\"7\":7,\"8\":8,\"9\":9,\"10\":\[1,2\],\"11\":11,\"12\":\[1,2\]\}\n" "\{\"1\":1,\"2\":2,\"3\":3,\"4\":4,\"5\":5,\"6\":6,\"7\":7,\"8\":8,\"9\":9,\"10\":\[1,2\],\"11\":11,\"12\":\[1,2\]\}\n"
}

start_server {} {
    test "every type of reply is shown in every form as Valkey's own tool shows it" -timeout 300 {
        lassign [canned_start] canned port
        foreach {reply expected} [lmap line [split [string trim $::shown_replies] \n] {string trim $line}] {
            set reply [lindex $reply 0]
            foreach form {--no-raw --raw --csv --json --quoted-json} text $expected {
                foreach protocol {-3 {}} {
                    set got [run -stdin $reply $::cli -p $port {*}$protocol $form -x RAW]
                    assert_equal [list 0 $text] [list [dict get $got code] [dict get $got out]] \
                        "$form $reply [dict get $got err]"
                }
            }
        }
        kill_process TERM [spawn_pid $canned]
        spawn_wait $canned
    }

    test "raw is the form where the output is no terminal" {
        r set k "two\nlines"
        assert_equal "two\nlines\n" [cli_out get k]
        assert_equal "\"two\\nlines\"\n" [cli_out --no-raw get k]
        r del k
    }

    test "-d and -D delimit raw replies and their elements" {
        r mset a 1 b 2
        assert_equal "1,2;" [cli_out -d , -D {;} mget a b]
        assert_equal "1\n2" [cli_out -D "" mget a b]
    }

    test "texts for people are shown as they are, in every form" {
        foreach form {--no-raw --raw --csv --json} {
            assert_match "# Server\r\n*" [cli_out $form info server]
            assert_match "id=*\n" [cli_out $form client list]
        }
    }

    test "-2 and -3 choose the protocol, JSON means RESP3" {
        assert_equal "\[\"maxmemory\",\"0\"\]\n" [cli_out -2 --json config get maxmemory]
        assert_equal "{\"maxmemory\":\"0\"}\n" [cli_out --json config get maxmemory]
        assert_equal "1# \"maxmemory\" => \"0\"\n" [cli_out -3 --no-raw config get maxmemory]
        assert_equal "1) \"maxmemory\"\n2) \"0\"\n" [cli_out --no-raw config get maxmemory]
    }

    test "a failed command is shown, and fails the program only with -e" {
        assert_equal [list 0 "ERR unknown command 'foo', with args beginning with: 'bar' \n\n" ""] [cli foo bar]
        assert_equal [list 1 "" "ERR unknown command 'foo', with args beginning with: 'bar' \n"] [cli -e foo bar]
        assert_equal [list 1 "" "ERR wrong number of arguments for 'get' command\n"] [cli -e get]
    }

    test "-r does not repeat commands from standard input" {
        r del n
        lassign [cli_in "incr n\n2 incr n\n" -r 3] code out err
        assert_equal "1\n2\n3\n" $out
    }

    test "-2 and -3 exclude each other" {
        assert_equal [list 1 "" "Options -2 and -3 are mutually exclusive.\n"] [cli -2 -3 ping]
        assert_equal [list 1 "" "Options -2 and -3 are mutually exclusive.\n"] [cli -3 -2 ping]
        assert_equal "PONG\n" [cli_out -3 -3 ping]
    }

    test "an invalidation is a line for terminals, and a reply in other formats" {
        foreach {options expected} {
            {} "OK\nOK\ninvalidate\na\nPONG\n"
            {--csv} "\"OK\"\n\"OK\"\n\"invalidate\",\"a\"\n\"PONG\"\n"
            {--no-raw} "OK\nOK\n-> invalidate: 'a'\nPONG\n"
        } {
            lassign [cli_in "client tracking on bcast\nset a 1\nping\n" -3 --show-pushes yes {*}$options] code out err
            assert_equal $expected $out
        }
        set got [run sh -c "printf 'client tracking on bcast\\nset a 1\\nping\\n' | \
            FAKETTY=1 $::cli -h [srv host] -p [srv port] -3"]
        assert_equal "OK\nOK\n-> invalidate: 'a'\nPONG\n" [dict get $got out]
    }

    test "an empty reply" {
        assert_equal [list 0 "" ""] [cli --csv info nosuch]
    }

    test "-r repeats, -i waits in between" {
        r del n
        set start [clock milliseconds]
        assert_equal "1\n2\n3\n" [cli_out -r 3 -i 0.1 incr n]
        assert_morethan [expr {[clock milliseconds] - $start}] 199
    }

    test "-x takes the last argument from standard input, -X the one named" {
        assert_equal [list 0 "OK\n" ""] [cli_in "some\0data\n" -x set k]
        assert_equal "some\0data\n" [r get k]
        assert_equal [list 0 "OK\n" ""] [cli_in "k2" -X name set name v]
        assert_equal v [r get k2]
        assert_equal [list 1 "" "Using -X option but stdin tag not match.\n"] [cli_in "k2" -X name set k v]
        assert_equal [list 1 "" "Options -x and -X are mutually exclusive.\n"] [cli_in "k2" -x -X k set k]
    }

    test "--quoted-input understands quotes" {
        assert_equal "OK\n" [cli_out --quoted-input set {"a\x00b"} 'q']
        assert_equal q [r get a\0b]
        assert_equal [list 1 "Invalid quoted string\n" ""] [cli --quoted-input get {"a}]
    }

    test "-n selects a database" {
        assert_equal "OK\n" [cli_out -n 3 set only3 1]
        assert_equal "1\n" [cli_out -n 3 exists only3]
        assert_equal "0\n" [cli_out exists only3]
        lassign [cli -n 9999 ping] code out err
        assert_equal [list 0 "PONG\n" "SELECT 9999 failed: ERR DB index is out of range\n"] [list $code $out $err]
    }

    test "-u says all at once" {
        set got [run $::cli -u valkey://[srv host]:[srv port]/5 set only5 1]
        assert_equal [list 0 "OK\n"] [list [dict get $got code] [dict get $got out]]
        assert_equal "1\n" [cli_out -n 5 exists only5]
        set got [run $::cli -u redis://[srv host]:[srv port] ping]
        assert_equal "PONG\n" [dict get $got out]
        set got [run $::cli -u http://x ping]
        assert_equal [list 1 "Invalid URI scheme\n"] [list [dict get $got code] [dict get $got err]]
    }

    test "nobody listens: exit code 1 and the reason" {
        set port [free_port]
        set got [run $::cli -p $port ping]
        assert_equal [list 1 "" "Could not connect to Valkey at 127.0.0.1:$port: Connection refused\n"] \
            [list [dict get $got code] [dict get $got out] [dict get $got err]]
        set got [run $::cli -s /nonexistent/socket ping]
        assert_equal [list 1 "Could not connect to Valkey at /nonexistent/socket: No such file or directory\n"] \
            [list [dict get $got code] [dict get $got err]]
        set got [run -stdin "ping\n" $::cli -p $port]
        assert_equal [list 0 ""] [list [dict get $got code] [dict get $got out]]
    }

    test "a server that closes the connection: exit code 1 and the reason" {
        lassign [canned_start] canned port
        set got [run $::cli -p $port close]
        assert_equal [list 1 "" "Error: Server closed the connection\n"] \
            [list [dict get $got code] [dict get $got out] [dict get $got err]]
        set got [run $::cli -p $port RAW {hello\r\n}]
        assert_equal [list 1 "Error: Protocol error, got \"h\" as reply type byte\n"] \
            [list [dict get $got code] [dict get $got err]]
        kill_process TERM [spawn_pid $canned]
        spawn_wait $canned
    }

    test "wrong options are refused by name" {
        foreach option {--bogus -p --eval -i} {
            lassign [cli $option] code out err
            assert_equal [list 1 "Unrecognized option or bad number of args for: '$option'\n"] [list $code $err]
        }
        assert_equal [list 1 "" "Invalid connection timeout for -t.\n"] [cli -t x ping]
        assert_equal [list 0 "PONG\n" "Unknown --show-pushes value 'maybe' (valid: '\[y\]es', '\[n\]o')\n"] \
            [cli --show-pushes maybe ping]
    }

    test "--cluster refuses wrong arguments before it connects" {
        foreach words {check {add-node a:1} {call a:1} {set-timeout a:1} {del-node a:1} {backup a:1} {import a:1 b c}} {
            assert_equal [list 1 "" "\[ERR\] Wrong number of arguments for specified --cluster sub command\n"] \
                [cli --cluster {*}$words] $words
        }
        assert_equal [list 1 "" "Unknown --cluster subcommand\n"] [cli --cluster bogus]
        assert_equal [list 1 "" "Invalid address format: a\n"] [cli --cluster create a b:1 c:1]
        foreach words {{check a} {check a b} {info a 70000} {call a get}} {
            lassign [cli --cluster {*}$words] code out err
            assert_equal {1 {}} [list $code $out] $words
            assert_match "\\\[ERR\\\] Invalid arguments: *" $err $words
        }
        assert_equal [list 1 "" "Setting a node timeout of less than 100 milliseconds is a bad idea.\n"] \
            [cli --cluster set-timeout [srv host]:[srv port] 99]
        assert_equal [list 1 "" "\[ERR\] Option '--cluster-from' is required for subcommand 'import'.\n"] \
            [cli --cluster import [srv host]:[srv port]]
        foreach option {--cluster-slots --cluster-pipeline --cluster-timeout --cluster-threshold} {
            assert_equal [list 1 "" "Invalid number for $option.\n"] [cli --cluster check a:1 $option -1]
        }
        foreach option {--cluster --cluster-bogus --cluster-weight} {
            assert_equal [list 1 "" "Unrecognized option or bad number of args for: '$option'\n"] [cli $option]
        }
    }

    test "--cluster names a server that is not in cluster mode" {
        set node [srv host]:[srv port]
        foreach command {check info fix reshard rebalance {create} {call ping}} {
            assert_equal [list 1 "\[ERR\] Node $node is not configured as a cluster node.\n" ""] \
                [cli --cluster [lindex $command 0] $node {*}[lrange $command 1 end]] $command
        }
        lassign [cli --cluster info [srv host]:1] code out err
        assert_equal [list 1 "Could not connect to Valkey at [srv host]:1: Connection refused\n"] [list $code $err]
    }

    test "--cluster help lists the subcommands, and --help their options" {
        set help [cli_out --help]
        lassign [cli --cluster help] code list err
        assert_equal {1 {}} [list $code $err] ;# as Valkey's
        foreach command {
            create check info fix reshard rebalance add-node del-node call set-timeout import backup help
        } {
            assert_regexp "(?n)^  $command +" $list
            assert_match "*$command*" $help
        }
        foreach {-> option} [regexp -all -inline {(?n)^ +(--cluster-[-a-z]+)} $list] {
            assert_match "*  $option *" $help
        }
    }

    test "--help and --version" {
        assert_match "valkey-cli \[0-9\]*" [cli_out --version]
        assert_match "*Usage: valkey-cli*" [cli_out --help]
        assert_match "*--rdma*" [cli_out --help]
        set got [run $::cli -h]
        assert_equal {0 {}} [list [dict get $got code] [dict get $got err]]
        assert_match "*Usage: valkey-cli*" [dict get $got out]
    }

    test "a mistyped number of -n or -r is refused and sends nothing" -needs {ours 1} {
        r set mistyped 1
        foreach option {-n -r} {
            foreach value {x 1x {} 1.5 99999999999999999999} {
                assert_equal [list 1 {} "Invalid number for $option.\n"] [cli $option $value incr mistyped]
            }
        }
        assert_equal 1 [r get mistyped]
    }

    test "lines of standard input are commands" {
        lassign [cli_in "set a 1\nget a\n\n  \nget \"a\nfoo\n3 incr cc\n-1 get a\n\"get\" \"\\x61\"\nexit\nget a\n"] \
            code out err
        assert_equal 0 $code
        assert_equal "OK\n1\nInvalid argument(s)\nERR unknown command 'foo', with args beginning with:\
            \n\n1\n2\n3\nInvalid valkey-cli repeat command option value.\n1\n" $out
        lassign [cli_in "select 4\nset in4 1\nget in4" --no-raw] code out err
        assert_equal "OK\nOK\n\"1\"\n" $out
        assert_equal "1\n" [cli_out -n 4 exists in4]
    }

    test "-c follows redirections, without it they are errors" {
        lassign [canned_start] canned port
        set moved "-MOVED 5 [srv host]:[srv port]\\r\\n"
        set got [run $::cli -p $port --no-raw RAW $moved]
        assert_equal "(error) MOVED 5 [srv host]:[srv port]\n" [dict get $got out]
        set got [run $::cli -p $port -c --no-raw RAW $moved]
        assert_match "(error) ERR unknown command 'RAW'*" [dict get $got out]
        set got [run -stdin "RAW \"$moved\"\nping\n" $::cli -p $port -c --no-raw]
        assert_match "-> Redirected to slot ?5? located at [srv host]:[srv\
            port]\n(error) ERR unknown command 'RAW'*PONG\n" [dict get $got out]
        kill_process TERM [spawn_pid $canned]
        spawn_wait $canned
    }

    test "help tells what the server says about its commands" {
        set out [cli_out help get]
        assert_match "*GET*key*summary:*since:*1.0.0*group:*string*" $out
        assert_match "*APPEND*GETSET*" [cli_out help @string]
        assert_match "*To get help about Valkey commands type:*" [cli_out help]
    }

    test "--scan lists the keys that match" {
        r flushall
        for {set i 0} {$i < 100} {incr i} {r set key:$i v}
        r set other "v"
        assert_equal 101 [llength [split [string trim [cli_out --scan]] \n]]
        assert_equal 11 [llength [split [string trim [cli_out --scan --pattern key:5* --count 7]] \n]]
        assert_equal "other\n" [cli_out --scan --quoted-pattern {"o\x74her"}]
        assert_equal "\"other\"\n" [cli_out --no-raw --scan --pattern o*]
    }

    test "--pipe sends lines and RESP and counts the replies" {
        set in ""
        for {set i 0} {$i < 20000} {incr i} {
            append in "*3\r\n\$3\r\nSET\r\n\$[string length p:$i]\r\np:$i\r\n\$[string length $i]\r\n$i\r\n"
        }
        lassign [cli_in $in --pipe] code out err
        assert_equal {0 {}} [list $code $err]
        assert_equal "All data transferred. Waiting for the last reply...\nLast reply received from server.\nerrors:\
            0, replies: 20000\n" $out
        assert_equal 19999 [r get p:19999]
        lassign [cli_in "set a b\r\nfoo\r\nset b c" --pipe] code out err
        assert_equal [list 1 "ERR unknown command 'foo', with args beginning with: \n"] [list $code $err]
        assert_match "*errors: 1, replies: 3\n" $out
        assert_equal c [r get b]
    }

    test "--pipe gives up when the last reply does not come" {
        lassign [canned_start] canned port
        set got [run -stdin "*2\r\n\$3\r\nRAW\r\n\$0\r\n\r\n" $::cli -p $port --pipe --pipe-timeout 1]
        assert_equal 1 [dict get $got code]
        assert_match "*No replies for 1 seconds: exiting.*" [dict get $got err]
        kill_process TERM [spawn_pid $canned]
        spawn_wait $canned
    }

    test "--stat shows a line of figures each interval" {
        set id [spawn $::cli -h [srv host] -p [srv port] --stat -i 0.05]
        wait_for_condition 10000 {[llength [split [spawn_out $id] \n]] > 5}
        kill_process TERM [spawn_pid $id]
        set lines [split [dict get [spawn_wait $id] out] \n]
        assert_equal "------- data ------ --------------------- load -------------------- - child -" [lindex $lines 0]
        assert_match "keys       mem      clients blocked requests            connections*" [lindex $lines 1]
        assert_regexp {^\d+ +\d+\.\d\d[KMG] +\d+ +\d+ +\d+ \(\+\d+\) +\d+ } [lindex $lines 3]
    }

    test "--replica shows the commands of the primary as they arrive" {
        with_config {repl-diskless-sync-delay 0} {
            set id [spawn $::cli -h [srv host] -p [srv port] --replica]
            wait_for_condition 30000 {[string match "*after * bytes. Logging commands from primary*" [spawn_err $id]]}
            r set shown "one \"two\""
            wait_for_condition 30000 {[string match {*"set","shown","one ?"two?""*} [spawn_out $id]]}
            kill_process TERM [spawn_pid $id]
            spawn_wait $id
            r del shown
        }
    }

    test "--latency samples for its interval and gives one line" {
        assert_regexp {^\d+ \d+ \d+\.\d\d \d+\n$} [cli_out --latency -i 0.1]
        assert_regexp {^\d+,\d+,\d+\.\d\d,\d+\n$} [cli_out --csv --latency -i 0.1]
    }

    test "--intrinsic-latency needs no server" {
        set got [run $::cli -p [free_port] --intrinsic-latency 1]
        assert_equal 0 [dict get $got code]
        assert_match "*total runs (avg latency:*Worst run took*" [dict get $got out]
    }

    test "--bigkeys finds the biggest" {
        r flushall
        r set small x
        r set large [string repeat x 1000]
        set out [cli_out --bigkeys]
        assert_match "*Biggest string found '\"large\"' has 1000 bytes*" $out
        assert_match "*\n-------- Summary --------\n*" $out
        assert_match "*2 strings with 1001 bytes (100.00% of keys, avg size 500.50)*" $out
        assert_match "*Sampled 2 keys in the keyspace!*" $out
    }

    test "--memkeys finds the keys that take the most memory" {
        r flushall
        r set small x
        r set large [string repeat x 10000]
        for {set i 0} {$i < 100} {incr i} {r rpush list [string repeat y $i]}
        foreach {options samples} {--memkeys {} {--memkeys-samples 0} {samples 0}} {
            set out [cli_out {*}$options]
            assert_match "*Biggest string found '\"large\"' has [r memory usage large {*}$samples] bytes*" $out
            assert_match "*Biggest   list found '\"list\"' has [r memory usage list {*}$samples] bytes*" $out
            assert_match "*2 strings with [expr {[r memory usage small] + [r memory usage large]}] bytes (66.67% of\
                keys, avg size *)*" $out
        }
        assert_match "*Sampled 1 keys in the keyspace!*" [cli_out --memkeys --pattern *ge]
    }

    test "--rdb fetches the data set, --functions-rdb the functions alone" {
        r flushall
        r set fetched yes
        r config set repl-diskless-sync-delay 0
        r function flush
        r function load "#!lua name=library\nserver.register_function('seven', function() return 7 end)"
        foreach {option keys} {--rdb 1 --functions-rdb 0} {
            set dir [file join $::unit_dir fetched$option]
            file mkdir $dir
            lassign [cli $option [file join $dir fetched.rdb]] code out err
            assert_equal {0 {}} [list $code $out] $err
            assert_match "*Transfer finished with success*" $err
            lassign [serve -dir $dir -- --port PORT --dir DIR --dbfilename fetched.rdb] handle port
            set client [new_client -port $port]
            assert_equal [list $keys 7] [list [$client exists fetched] [$client fcall seven 0]] $option
            $client -close
            kill_process TERM [spawn_pid $handle]
            spawn_wait $handle
        }
        lassign [cli --rdb -] code out err
        assert_equal [list 0 1] [list $code [regexp {^(REDIS|VALKEY)\d+} $out]]
        assert_match "*marker to '-'\n*" $err
        lassign [cli --rdb /nonexistent/directory/file] code out err
        assert_equal 1 $code
        assert_match "*Error opening '/nonexistent/directory/file': No such file or directory*" $err
        lassign [cli --rdb /dev/full] code out err
        assert_equal 1 $code
        assert_match "*\nError writing data to file: No space left on device\n" $err
        r function flush
    }

    test "--rdb without the permission for SYNC or REPLCONF" {
        r flushall
        r set fetched yes
        r config set repl-diskless-sync-delay 0
        set path [file join $::unit_dir refused.rdb]
        r acl setuser nosync on >p ~* +@all -sync
        lassign [cli --user nosync --pass p --no-auth-warning --rdb $path] code out err
        assert_equal [list 1 0] [list $code [file exists $path]]
        assert_match "*\nSYNC with primary failed: -NOPERM User nosync has no permissions*" $err
        # Without REPLCONF the server sends a full copy; it cannot be asked for the functions alone.
        r acl setuser noconf on >p ~* +@all -replconf
        foreach {option wanted end} {
            --rdb 0 "Transfer finished with success*" --functions-rdb 1 "Failed requesting functions only RDB*"
        } {
            lassign [cli --user noconf --pass p --no-auth-warning $option $path] code out err
            assert_equal $wanted $code $err
            assert_match "*\nREPLCONF rdb-only error: NOPERM *\n$end" $err
        }
        r acl deluser nosync noconf
    }

    # Waits until a mode that never ends has written lines of this form; gives what it has written.
    proc written_lines {form count args} {
        set id [spawn $::cli -h [srv host] -p [srv port] {*}$args]
        wait_for_condition 20000 {[regexp -all -line $form [spawn_out $id]] >= $count}
        kill_process TERM [spawn_pid $id]
        return [dict get [spawn_wait $id] out]
    }

    test "--latency-history and --latency-dist show a line each interval" {
        written_lines {^\d+ \d+ \d+\.\d\d \d+$} 3 --latency-history -i 0.05
        written_lines {^\d+,\d+,\d+\.\d\d,\d+$} 3 --csv --latency-history -i 0.05
        set colour {\x1b\[48;5;\d+m}
        set row "\\.${colour}-${colour}\\*${colour}#${colour}1.*P${colour}Q${colour}\\?"
        set out [written_lines $row 3 --latency-dist -i 0.05]
        assert_match "*. - \\* #          .01 .125 .25 .5 milliseconds\n*" $out
    }

    test "--lru-test loads a cache and counts its hits" {
        r flushall
        set line {^\d+ Gets/sec \| Hits: \d+ \(\d+\.\d\d%\) \| Misses: \d+ \(\d+\.\d\d%\)$}
        set out [written_lines $line 1 --lru-test 20]
        regexp {(\d+) Gets/sec \| Hits: (\d+) .*Misses: (\d+)} $out -> gets hits misses
        assert_equal $gets [expr {$hits + $misses}]
        assert {$hits > 0 && $misses > 0} $out
        assert {[r dbsize] > 0 && [r dbsize] <= 21} [r dbsize]
        assert_match {lru:*} [r randomkey]
        r flushall
    }

    test "--hotkeys-count keeps the hottest keys" -needs {ours 1} {
        r flushall
        r config set maxmemory-policy allkeys-lfu lfu-log-factor 0
        for {set i 0} {$i < 20} {incr i} {
            r set key:$i v
            for {set use 0} {$use < $i * 5} {incr use} {r get key:$i}
        }
        foreach {options count} {--hotkeys 16 {--hotkeys-count 3} 3 {--hotkeys-count 100} 20} {
            set found [regexp -all -inline {hot key found with counter: \d+\tkeyname: "key:(\d+)"} \
                [cli_out {*}$options]]
            assert_equal $count [expr {[llength $found] / 2}]
            assert_equal {19 18 17} [lmap {- key} [lrange $found 0 5] {set key}]
        }
        lassign [cli --hotkeys-count 0] code out err
        assert_equal [list 1 "Invalid number for --hotkeys-count.\n"] [list $code $err]
        r config set maxmemory-policy noeviction lfu-log-factor 10
    }

    test "--mptcp connects, and is refused for other transports" \
        -needs {true {[file exists /proc/sys/net/mptcp/enabled]}} -tags {tcp-only} {
        assert_equal "PONG\n" [cli_out --mptcp ping]
        lassign [cli --mptcp -s /tmp/socket ping] code out err
        assert_equal [list 1 "Options --mptcp is only supported by TCP.\n"] [list $code $err]
    }
}

start_server {} {
    # Lines of standard input, one after another: {code out err}.
    proc lines {args} {cli_in "[join $args \n]\n"}

    test "quoted and plain text without space between them is one argument" {
        assert_equal "OK\nabc\n" [lindex [lines {set "quo"ted'key' a"b"c} {get quotedkey}] 1]
        assert_equal "Invalid argument(s)\nInvalid argument(s)\n" [lindex [lines {set a"b} {echo "a\"}] 1]
    }

    test ":get pubsub tells whether there are subscriptions, channels of shards counted apart" {
        set out [lindex [lines {:get pubsub} {subscribe a b} {psubscribe p*} {ssubscribe s} {sunsubscribe s}\
            {:get pubsub} unsubscribe punsubscribe {:get pubsub} {:get other}] 1]
        assert_equal [list 0 subscribe a 1 subscribe b 2 psubscribe p* 3 ssubscribe s 1 sunsubscribe s 0 1]\
            [lrange [split $out \n] 0 16]
        set end "0\nunknown valkey-cli get option 'other'\n"
        assert_equal $end [string range $out end-[expr {[string length $end] - 1}] end]
    }

    test "at a terminal the subscribed prompt says that it reads messages" {
        set ::env(FAKETTY) 1
        set out [lindex [lines {subscribe a} {get k} unsubscribe ping] 1]
        unset ::env(FAKETTY)
        set notice {*Reading messages... (press Ctrl-C to quit or any key to type command)*}
        assert_match "1) \"subscribe\"\n*(integer) 1\n$notice\x1b\\\[K(error) ERR Can't execute\
            'get':*$notice\x1b\\\[K1) \"unsubscribe\"\n2) \"a\"\n3) (integer) 0\nPONG\n" $out
    }

    test "a subscribed script shows messages until its input ends" {
        set pipe [file join $::unit_dir subscribed.pipe]
        exec mkfifo $pipe
        set handle [spawn sh -c "$::cli -h [srv host] -p [srv port] <$pipe"]
        set input [open $pipe w]
        puts $input "subscribe news"
        flush $input
        wait_for_condition 5000 {[r publish news one] == 1}
        wait_for_condition 5000 {[string match "subscribe\nnews\n1\nmessage\nnews\none\n*" [spawn_out $handle]]}
        close $input
        spawn_wait $handle
    }

    test "at the prompt a dropped connection is an error, and the next command connects again" {
        set out [lindex [lines {select 3} {client setname dropped} {client kill name dropped skipme no}\
            ping {client info}] 1]
        assert_match "OK\n*db=3 *" $out
        assert_equal 0 [string match "*PONG*" $out]
    }

    test "SYNC and PSYNC are sent as they were typed" {
        foreach command {{sync x} psync} {
            lassign [cli {*}$command] code out err
            assert_equal 1 $code
            set reason "wrong number of arguments for '[lindex $command 0]' command"
            assert_equal "Entering replica output mode...  (press Ctrl-C to quit)\n" $out
            assert_equal "SYNC with primary failed: -ERR $reason\n" [string map {\r ""} $err]
        }
        set handle [spawn $::cli -h [srv host] -p [srv port] psync ? -1]
        wait_for_condition 10000 {[string match "*state=online*" [r info replication]]}
        wait_for_condition 10000 {[r set sent 1; string match {*"set","sent","1"*} [spawn_out $handle]]}
        assert_match "PSYNC replied +FULLRESYNC *" [spawn_err $handle]
        r client kill type replica
        spawn_wait $handle
    }

    set hints {
        {get } key
        {get a} key
        {get a } {}
        {nosuch } {}
        {set k v } {[NX|XX|IFEQ comparison-value] [GET] [EX seconds|PX milliseconds|EXAT unix-time-seconds|PXAT\
            unix-time-milliseconds|KEEPTTL]}
        {set k v px } {milliseconds [NX|XX|IFEQ comparison-value] [GET]}
        {set k v px x } {}
        {config set a } {value [parameter value ...]}
        {config set a b c } {value [parameter value ...]}
        {zadd k 1 } {member [score member ...]}
        {zadd k nx xx } {}
        {zadd k ch 2 m } {[score member ...]}
        {hello 3 auth u } {password [SETNAME clientname]}
        {lpop k x } {}
        {bitop and d } {key [key ...]}
        {sort k get a get } {pattern [GET pattern ...]] [BY pattern] [LIMIT offset count] [ASC|DESC] [ALPHA]\
            [STORE destination]}
        {acl } {}
    }
    test "hints show what may follow the complete words, from the server or without one" {
        foreach {line hint} $hints {
            regsub -all {\\?\s+} $hint " " hint
            assert_equal "$hint\n" [cli_out --test_hint $line] $line
            set got [run $::cli -p [free_port] --test_hint $line]
            assert_equal "$hint\n" [dict get $got out] $line
        }
    }

    test "hints for SENTINEL need no Sentinel" {
        foreach {line hint} {
            "SENTINEL FAILOVER " "primary-name \[COORDINATED]"
            "sentinel is-primary-down-by-addr 10.0.0.1 " "port current-epoch runid"
        } {
            assert_equal "$hint\n" [dict get [run $::cli -p [free_port] --test_hint $line] out] $line
        }
    }

    test "--test_hint_file compares hints with those in a file" {
        set file [file join $::unit_dir hints]
        write_file $file "# a comment\n\"get \" \"key\"\n\"get k \" \"\"\n"
        assert_equal "SUCCESS: 2/2 passed\n" [cli_out --test_hint_file $file]
        write_file $file "\"get \" \"keys\"\n\"no\" \"\"\n"
        lassign [cli --test_hint_file $file] code out err
        assert_equal 1 $code
        assert_equal "Test case 'get ' FAILED: expected 'keys', got 'key'\nFAILURE: 1/2 passed\n" $out
        assert_equal 255 [lindex [cli --test_hint_file $file.missing] 0]
    }
}

start_server {overrides {requirepass secret}} {
    test "a password on the command line, with its warning" {
        set warning "Warning: Using a password with '-a' or '-u' option on the command line interface may\
            not be safe.\n"
        assert_equal [list 0 "PONG\n" $warning] [cli -a secret ping]
        assert_equal [list 0 "PONG\n" $warning] [cli --pass secret ping]
        assert_equal [list 0 "PONG\n" ""] [cli -a secret --no-auth-warning ping]
        assert_equal [list 0 "PONG\n" ""] [cli --user default -a secret --no-auth-warning ping]
        set got [run $::cli -u valkey://default:secret@[srv host]:[srv port] --no-auth-warning ping]
        assert_equal "PONG\n" [dict get $got out]
    }

    test "a password from the environment" {
        foreach name {VALKEYCLI_AUTH REDISCLI_AUTH} {
            set got [run env $name=secret $::cli -h [srv host] -p [srv port] ping]
            assert_equal [list 0 "PONG\n" ""] [list [dict get $got code] [dict get $got out] [dict get $got err]]
        }
    }

    test "--askpass reads the password from standard input" {
        lassign [cli_in "secret\n" --askpass ping] code out err
        assert_equal 0 $code
        assert_match "*PONG\n" $out
        lassign [cli_in "wrong\n" --askpass ping] code out err
        assert_match "*AUTH failed: WRONGPASS *" $err
    }

    test "no password, or a wrong one" {
        assert_equal [list 0 "NOAUTH Authentication required.\n\n" ""] [cli ping]
        assert_equal [list 0 "NOAUTH Authentication required.\n\n" \
            "AUTH failed: WRONGPASS invalid username-password pair or user is disabled.\n"] \
            [cli -a wrong --no-auth-warning ping]
    }

    test "a mode that the server refuses says which request it has refused" {
        set refused "NOAUTH Authentication required."
        set dbsize "Couldn't determine DBSIZE: $refused\n"
        foreach {mode err} [list --scan "SCAN error: $refused\n" --bigkeys $dbsize --memkeys $dbsize --hotkeys $dbsize \
            --stat "CONFIG GET databases fails: $refused, use default value 16 instead\nERROR: $refused\n"] {
            assert_equal [list 1 "" $err] [cli $mode] $mode
        }
        # RESP3 is a condition only if it was asked for.
        lassign [cli --json --scan] code out err
        assert_match "HELLO 3 failed: NOAUTH *\nSCAN error: $refused\n" $err
        lassign [cli -3 --scan] code out err
        assert_match "HELLO 3 failed: NOAUTH *" $err
        assert_not_match "*SCAN*" $err
        lassign [cli --latency -i 0.05] code out err
        assert_equal {0 {}} [list $code $err]
        assert_regexp {^\d+ \d+ \d+\.\d\d \d+\n$} $out
        set id [spawn $::cli -h [srv host] -p [srv port] --lru-test 10]
        wait_for_condition 10000 {[string match "$refused\n$refused\n*" [spawn_err $id]]}
        kill_process TERM [spawn_pid $id]
        spawn_wait $id
    }

    test "--cluster says what it begins before it connects" {
        set node [srv host]:[srv port]
        set id [string repeat a 40]
        foreach {words said} [list "add-node 127.0.0.1:1 $node" "Adding node 127.0.0.1:1 to cluster $node" \
            "del-node $node $id" "Removing node $id from cluster $node" \
            "import $node --cluster-from 127.0.0.1:1" "Importing data from 127.0.0.1:1 to cluster $node"] {
            set got [run $::cli --cluster {*}$words]
            assert_equal [list 1 ">>> $said\n\[ERR\] Node $node NOAUTH Authentication required.\n"] \
                [list [dict get $got code] [regsub -all {\x1b\[[0-9;]*m} [dict get $got out] ""]] $words
        }
    }

    test "--bigkeys says which request for a key was refused" {
        r auth secret
        r set k1 v
        set as {--user u --pass p --no-auth-warning}
        foreach {rule mode wanted end} {
            -scan --bigkeys 1 "SCAN error: NOPERM *"
            -type --bigkeys 1 "TYPE returned an error: NOPERM *"
            -strlen --bigkeys 0 "Warning:  STRLEN on 'k1' failed (may have changed type)\n"
            -memory --memkeys 0 "Warning:  MEMORY USAGE on 'k1' failed (may have changed type)\n"
            -readonly --bigkeys 1 "Error: NOPERM *"
        } {
            r acl setuser u reset on >p ~* +@all $rule
            lassign [cli {*}$as $mode] code out err
            assert_equal $wanted $code $rule
            assert_match $end $err $rule
        }
        r acl deluser u
        r flushall
    }

    set script [file join [srv dir] connecting.lua]
    set file [open $script w]
    puts $file {return redis.call('set', 'a', '1')}
    close $file
    foreach {what options} {
        "AUTH" {-a wrong --no-auth-warning}
        "SELECT" {-a secret --no-auth-warning -n 99}
    } {
        foreach mode [list --pipe "--eval $script" "--ldb --eval $script" --scan --bigkeys --memkeys --hotkeys \
                          "--rdb [srv dir]/out.rdb" "--functions-rdb [srv dir]/out.rdb" --latency --latency-history \
                          --latency-dist --stat --replica "--lru-test 10"] {
            test "a mode sends nothing after $what failed: [lindex $mode 0]" {
                r auth secret
                r config resetstat
                lassign [cli_in "SET a 1\n" {*}$options {*}$mode] code out err
                assert_equal [list 1 ""] [list $code $out]
                assert_match "$what*failed: *\n" $err
                assert_equal 1 [regexp -all {\n} $err]
                assert_equal {} [lsearch -all -inline -regexp [split [r info commandstats] "\n"] \
                                     {^cmdstat_(?!auth|select|config|info|command)}]
                assert_equal 0 [file exists [srv dir]/out.rdb]
            }
        }
    }
}
