# The RESP protocol as bytes on the wire.
# seconds: 6

# The reply to these bytes, and whether the server closed the connection: {bytes closed?}. A PING after the bytes would
# affect them, so the end of the reply is found by its expected length.
proc answer {bytes want {closes 0}} {
    set c [new_client]
    $c -timeout 5000
    $c -write $bytes
    set got ""
    if {[string length $want]} {set got [$c -readraw [string length $want]]}
    if {$got ne $want} {fail "expected [shown $want], got [shown $got] (to [printable $bytes 80])"}
    if {$closes} {
        if {![$c -eof 5000]} {fail "expected the server to close the connection after [printable $bytes 80]"}
    } else {
        $c -write "*2\r\n\$4\r\nECHO\r\n\$5\r\nalive\r\n"
        set got [$c -readraw 11]
        if {$got ne "\$5\r\nalive\r\n"} {
            fail "expected no more than [shown $want], got [shown $got] (to [printable $bytes 80])"
        }
    }
    $c -close
}
proc refused {bytes text} {answer $bytes "-ERR Protocol error: $text\r\n" 1}

start_server {tags {protocol}} {
    # --- Inline commands --------------------------------------------------------

    test "inline commands" {
        answer "PING\r\n" "+PONG\r\n"
        answer "ping\r\n" "+PONG\r\n"
        answer "SET inline v\r\nGET inline\r\n" "+OK\r\n\$1\r\nv\r\n"
        answer "PING\n" "+PONG\r\n"
        answer "  PING  \r\n" "+PONG\r\n"
        answer "PING hello\r\n" "\$5\r\nhello\r\n"
        answer "ECHO\ta\r\n" "\$1\r\na\r\n"
    }

    test "empty lines are skipped" {
        answer "\r\n" ""
        answer "\r\n\r\n\n\nPING\r\n" "+PONG\r\n"
        answer "   \r\nPING\r\n" "+PONG\r\n"
        answer "[string repeat "\r\n" 1000]PING\r\n" "+PONG\r\n"
    }

    test "inline arguments in quotes" {
        answer "\"PING\"\r\n" "+PONG\r\n"
        answer "'PING'\r\n" "+PONG\r\n"
        answer "ECHO \"a b\"\r\n" "\$3\r\na b\r\n"
        answer "ECHO \"\"\r\n" "\$0\r\n\r\n"
        answer "ECHO ''\r\n" "\$0\r\n\r\n"
        answer "ECHO \"a\\x41\\n\\r\\t\\b\\a\\\"\\\\\\q\"\r\n" "\$10\r\naA\n\r\t\b\a\"\\q\r\n"
        answer "ECHO \"\\xff\\x00\"\r\n" "\$2\r\n\xff\x00\r\n"
        answer "ECHO \"\\x4\"\r\n" "\$2\r\nx4\r\n"
        answer "ECHO \"\\xzz\"\r\n" "\$3\r\nxzz\r\n"
        answer "ECHO 'a\\'b\\n\\x41'\r\n" "\$9\r\na'b\\n\\x41\r\n"
        answer "ECHO a\"b c\"\r\n" "\$4\r\nab c\r\n"
        answer "ECHO 'say \"x\"'\r\n" "\$7\r\nsay \"x\"\r\n"
    }

    test "unbalanced quotes end the connection" {
        foreach bytes {"ECHO \"a\r\n" "ECHO 'a\r\n" "ECHO a\"b\r\n" "\"\r\n" "'\r\n"} {
            refused $bytes "unbalanced quotes in request"
        }
    }

    test "a quote at the end of an inline request closes the word, even behind a backslash" -needs {version 9.0} {
        answer "ECHO \"a\\\"\r\n" "\$2\r\na\\\r\n"
        answer "ECHO x'a\\'\n" "\$3\r\nxa\\\r\n"
        answer "ECHO \"a\\\"\"\r\n" "\$2\r\na\"\r\n"
        refused "ECHO \"a\\\" \r\n" "unbalanced quotes in request"
    }

    test "a too big inline request ends the connection" {
        answer "ECHO [string repeat x 60000]\r\n" "\$60000\r\n[string repeat x 60000]\r\n"
        refused [string repeat x 70000] "too big inline request"
        refused [string repeat "x " 40000] "too big inline request"
    }

    test "requests of a browser are refused by closing" {
        foreach bytes {"POST / HTTP/1.1\r\n\r\n" "Host: localhost\r\n\r\n" "GET / HTTP/1.1\r\nHost: a\r\n\r\n"\
            "post\r\n" "host: x\r\n"} {
            set c [new_client]
            set from [log_size]
            $c -write $bytes
            assert_closed $c
            $c -close
            wait_for_log "Possible SECURITY ATTACK detected" 0
        }
    }

    # --- Multibulk ---------------------------------------------------------------

    test "multibulk commands" {
        answer "*1\r\n\$4\r\nPING\r\n" "+PONG\r\n"
        answer "*2\r\n\$4\r\nECHO\r\n\$0\r\n\r\n" "\$0\r\n\r\n"
        answer "*2\r\n\$4\r\nECHO\r\n\$4\r\n\r\n\r\n\r\n" "\$4\r\n\r\n\r\n\r\n"
        answer "*3\r\n\$3\r\nSET\r\n\$1\r\na\r\n\$3\r\n\x00\x01\xff\r\n*2\r\n\$3\r\nGET\r\n\$1\r\na\r\n" \
            "+OK\r\n\$3\r\n\x00\x01\xff\r\n"
    }

    test "counts of zero and below are no command" {
        foreach n {0 -1 -10 -2147483648} {
            answer "*$n\r\n*1\r\n\$4\r\nPING\r\n" "+PONG\r\n"
        }
        answer [string repeat "*0\r\n" 5000]PING\r\n "+PONG\r\n"
    }

    test "a bad multibulk length ends the connection" {
        foreach n {"" a 1x 1.0 " 1" +1 01 2147483648 9223372036854775807 9223372036854775808\
            99999999999999999999 - 1\t} {
            refused "*$n\r\n" "invalid multibulk length"
        }
    }

    test "a bad bulk length ends the connection" {
        foreach n {-1 "" a 4x 4.0 " 4" +4 04 536870913 9223372036854775807 9223372036854775808 -9223372036854775808} {
            refused "*1\r\n\$$n\r\nPING\r\n" "invalid bulk length"
        }
        refused "*2\r\n\$4\r\nECHO\r\n\$-5\r\n" "invalid bulk length"
    }

    test "anything but a bulk in a multibulk ends the connection" {
        foreach {bytes got} {"PING\r\n" P ":4\r\n" : "*1\r\n" * "+OK\r\n" + "\r\n" " " "x\r\n" x} {
            refused "*1\r\n$bytes" "expected '\$', got '$got'"
        }
        refused "*2\r\n\$4\r\nECHO\r\nabc\r\n" "expected '\$', got 'a'"
    }

    test "a length line without end ends the connection" {
        refused "*[string repeat 1 70000]" "too big mbulk count string"
        refused "*1\r\n\$[string repeat 1 70000]" "too big bulk count string"
        refused "*1\r\n[string repeat x 70000]" "too big bulk count string"
    }

    test "requests before a protocol error are still executed" {
        r del before
        answer "SET before 1\r\nPING\r\n*x\r\nSET after 1\r\n" \
            "+OK\r\n+PONG\r\n-ERR Protocol error: invalid multibulk length\r\n" 1
        assert_equal 1 [r get before]
        assert_equal 0 [r exists after]
    }

    test "an unknown command is named with its first arguments" {
        answer "foo\r\n" "-ERR unknown command 'foo', with args beginning with: \r\n"
        answer "foo a b\r\n" "-ERR unknown command 'foo', with args beginning with: 'a' 'b' \r\n"
        answer "*1\r\n\$0\r\n\r\n" "-ERR unknown command '', with args beginning with: \r\n"
        answer "*2\r\n\$3\r\nfoo\r\n\$1\r\n\n\r\n" "-ERR unknown command 'foo', with args beginning with: ' ' \r\n"
        set long [string repeat a 200]
        answer "foo $long b\r\n" "-ERR unknown command 'foo', with args beginning with: '[string repeat a 128]' \r\n"
        answer "[string repeat x 500] a\r\n" \
            "-ERR unknown command '[string repeat x 128]', with args beginning with: 'a' \r\n"
        answer "CLIENT nope\r\n" "-ERR unknown subcommand 'nope'. Try CLIENT HELP.\r\n"
    }

    test "the name of a command may be in any letter case" {
        answer "pInG\r\n" "+PONG\r\n"
        answer "cLiEnT gEtNaMe\r\n" "\$-1\r\n"
        answer "sEt x y Ex 100 nX\r\n" "+OK\r\n"
    }

    # --- Pieces ---------------------------------------------------------------------

    test "a request may arrive in any two pieces" {
        set request "*3\r\n\$3\r\nSET\r\n\$5\r\nsplit\r\n\$12\r\n12345\r\n67890\r\nECHO \"a\
            b\"\r\n*2\r\n\$3\r\nGET\r\n\$5\r\nsplit\r\n"
        set reply "+OK\r\n\$3\r\na b\r\n\$12\r\n12345\r\n67890\r\n"
        set n [string length $request]
        set clients {}
        for {set at 1} {$at < $n} {incr at} {
            set c [new_client]
            fconfigure [$c -fd] -buffering none
            $c -write [string range $request 0 $at-1]
            lappend clients $c
        }
        # The server has read the first pieces when it has replied to another client twice.
        r ping
        r ping
        set at 0
        foreach c $clients {$c -write [string range $request [incr at] end]}
        foreach c $clients {
            assert_equal $reply [$c -readraw [string length $reply]]
            $c -close
        }
    }

    test "a request may arrive byte by byte" {
        set c [new_client]
        set request "*3\r\n\$3\r\nSET\r\n\$3\r\nkey\r\n\$5\r\nvalue\r\nPING\r\n*2\r\n\$3\r\nGET\r\n\$3\r\nkey\r\n"
        foreach byte [split $request ""] {
            $c -write $byte
            r ping
        }
        assert_equal "+OK\r\n+PONG\r\n\$5\r\nvalue\r\n" [$c -readraw 23]
    }

    test "a pipeline of 50,000 commands is answered in order" {
        set c [new_client]
        set out ""
        for {set i 0} {$i < 50000} {incr i} {append out "*2\r\n\$4\r\nECHO\r\n\$6\r\n[format %06d $i]\r\n"}
        $c -write $out
        for {set i 0} {$i < 50000} {incr i} {
            if {[set got [$c -read]] ne [format %06d $i]} {fail "expected [format %06d $i], got $got"}
        }
    }

    test "a pipeline of 50,000 inline commands" {
        set c [new_client]
        $c -write [string repeat "PING\r\n" 50000]
        assert_equal [string repeat "+PONG\r\n" 50000] [$c -readraw 350000]
    }

    test "a pipeline arriving in pieces of random length" {
        set out ""
        set want ""
        for {set i 0} {$i < 3000} {incr i} {
            set v [randstring 0 300 compr]
            append out [resp_command echo $v]
            append want "\$[string length $v]\r\n$v\r\n"
        }
        set c [new_client]
        set at 0
        set n [string length $out]
        while {$at < $n} {
            set len [expr {1 + [randint [pick 3 50 2000 20000]]}]
            $c -write [string range $out $at [expr {$at + $len - 1}]]
            incr at $len
            if {![randint 10]} {$c -flush; r ping}
        }
        assert_equal $want [$c -readraw [string length $want]]
    }

    test "pipelines of many clients at the same time" {
        set clients {}
        for {set i 0} {$i < 50} {incr i} {lappend clients [new_client]}
        for {set round 0} {$round < 10} {incr round} {
            foreach c $clients {
                set out ""
                for {set i 0} {$i < 100} {incr i} {append out [resp_command echo $c:$round:$i]}
                $c -write $out
            }
            foreach c $clients {
                for {set i 0} {$i < 100} {incr i} {assert_equal $c:$round:$i [$c -read]}
            }
        }
    }

    foreach {name size} {"64 KiB" 65536 "1 MiB" 1048576 "16 MiB" 16777216 "64 MiB" 67108864} {
        test "an argument of $name, sent in two pieces" -timeout 120 {
            set chunk [string repeat 0123456789abcdef 4096]
            set v [string repeat $chunk [expr {$size / 65536}]]
            set c [new_client]
            $c -timeout 60000
            $c -write "*3\r\n\$3\r\nSET\r\n\$3\r\nbig\r\n\$$size\r\n"
            $c -write [string range $v 0 [expr {$size / 3}]]
            $c -flush
            r ping
            $c -write [string range $v [expr {$size / 3 + 1}] end]\r\n
            assert_equal OK [$c -read]
            assert_equal $size [$c strlen big]
            assert {[$c getrange big [expr {$size / 3 - 50}] [expr {$size / 3 + 50}]] eq
                [string range $v [expr {$size / 3 - 50}] [expr {$size / 3 + 50}]]}
            assert {[$c get big] eq $v}
            $c del big
        }
    }

    test "big arguments at every length around the buffer sizes" {
        foreach base {16384 32768 65536 131072} {
            for {set d -3} {$d <= 3} {incr d} {
                set v [string repeat x [expr {$base + $d}]]
                assert {[r echo $v] eq $v}
                answer "ECHO short\r\n[resp_command echo $v]PING\r\n" \
                    "\$5\r\nshort\r\n\$[string length $v]\r\n$v\r\n+PONG\r\n"
            }
        }
    }

    test "a command of 100,000 arguments" {
        set args {}
        for {set i 0} {$i < 100000} {incr i} {lappend args k$i}
        assert_equal 0 [r del {*}$args]
        assert_equal 0 [r exists {*}$args]
    }

    test "a big argument between small commands of a pipeline" {
        set v [string repeat y 300000]
        set c [new_client]
        $c -write "PING\r\n[resp_command set mid $v]PING\r\n[resp_command get mid]PING\r\n"
        assert_equal PONG [$c -read]
        assert_equal OK [$c -read]
        assert_equal PONG [$c -read]
        assert {[$c -read] eq $v}
        assert_equal PONG [$c -read]
    }

    test "the reply of a client that reads late is complete" {
        r set big [set big [numbered 5000000]]
        set c [new_client]
        for {set i 0} {$i < 6} {incr i} {$c -send get big}
        $c -send ping
        for {set i 0} {$i < 20} {incr i} {r ping}
        for {set i 0} {$i < 6} {incr i} {assert_equal $big [$c -read]}
        assert_equal PONG [$c -read]
        r del big
    }

    test "a client that closes in the middle of a request does not affect others" {
        foreach bytes {"*3\r\n\$3\r\nSET\r\n" "*3\r\n\$3\r\nSET\r\n\$1\r\na\r\n\$100000\r\nabc" "PIN" "*" "*3\r"\
            "GET \"a"} {
            set c [new_client]
            $c -write $bytes
            $c -flush
            $c -close
        }
        assert_equal PONG [r ping]
        wait_for_condition 3000 {[info_field clients connected_clients] <= 3}
    }

    test "a client that closes without reading its replies does not affect others" {
        r set big [string repeat z 1000000]
        for {set i 0} {$i < 10} {incr i} {
            set c [new_client]
            for {set j 0} {$j < 5} {incr j} {$c -send get big}
            $c -close
        }
        assert_equal PONG [r ping]
        r del big
    }

    test "a client that closes its writing half still gets its replies" -tags {tcp-only} {
        set c [new_client]
        $c -write "PING\r\nECHO last\r\n"
        assert_equal PONG [$c -read]
        assert_equal last [$c -read]
    }

    test "client-query-buffer-limit ends a client that sends too much" {
        r config set client-query-buffer-limit 1048576
        set c [new_client]
        set from [log_size]
        $c -write "*2\r\n\$4\r\nECHO\r\n\$3000000\r\n"
        catch {
            $c -write [string repeat x 2999999]
            $c -flush
        }
        assert_closed $c
        wait_for_log "Closing client that reached max query buffer length" $from
        assert_morethan [info_field stats client_query_buffer_limit_disconnections] 0
        r config set client-query-buffer-limit 1073741824
        assert_equal [set long [numbered 3000000]] [r echo $long]
    }

    test "proto-max-bulk-len limits a bulk" {
        r config set proto-max-bulk-len 1048576
        answer "*2\r\n\$4\r\nECHO\r\n\$1048576\r\n[string repeat x 1048576]\r\n" \
            "\$1048576\r\n[string repeat x 1048576]\r\n"
        refused "*2\r\n\$4\r\nECHO\r\n\$1048577\r\n" "invalid bulk length"
        r config set proto-max-bulk-len 536870912
        assert_error_like "*must be between 1048576 and*" {r config set proto-max-bulk-len 1024}
    }

    test "memory given to a big request returns when its client has gone" {
        set before [info_field memory used_memory]
        for {set i 0} {$i < 5} {incr i} {
            set c [new_client]
            $c echo [string repeat x 4000000]
            $c -close
        }
        wait_for_condition 5000 {[info_field memory used_memory] < $before + 3000000}
    }

    # --- RESP3 and RESP2 forms ---------------------------------------------------------

    test "DEBUG PROTOCOL shows every type in RESP3" {
        set c [new_client -resp 3]
        replies {
            {debug protocol string} {$Hello World}
            {debug protocol integer} :12345
            {debug protocol double} ,3.141
            {debug protocol null} _
            {debug protocol array} {* :0 :1 :2}
            {debug protocol set} {~ :0 :1 :2}
            {debug protocol map} {% :0 #f :1 #t :2 #f}
            {debug protocol verbatim} "=txt:This is a verbatim\nstring"
            {debug protocol true} #t
            {debug protocol false} #f
            {debug protocol bignum} (1234567999999999999999999999999999999
        } $c
        assert_reply $c {| $key-popularity {* $key:123 :90}} debug protocol attrib
        assert_equal "Some real reply following the attribute" [$c -read]
        $c -write "*3\r\n\$5\r\nDEBUG\r\n\$8\r\nPROTOCOL\r\n\$4\r\npush\r\n"
        assert_equal {$Some real reply following the push reply} [$c -readtyped]
        assert_equal {> {$server-cpu-usage} :42} [$c -readtyped]
    }

    test "DEBUG PROTOCOL shows every type in RESP2" {
        replies {
            {debug protocol string} {$Hello World}
            {debug protocol integer} :12345
            {debug protocol double} {$3.141}
            {debug protocol null} nil$
            {debug protocol array} {* :0 :1 :2}
            {debug protocol set} {* :0 :1 :2}
            {debug protocol map} {* :0 :0 :1 :1 :2 :0}
            {debug protocol attrib} {$Some real reply following the attribute}
            {debug protocol push} "-ERR RESP2 is not supported by this command"
            {debug protocol verbatim} "$This is a verbatim\nstring"
            {debug protocol true} :1
            {debug protocol false} :0
            {debug protocol bignum} {$1234567999999999999999999999999999999}
            {debug protocol foo} "-ERR Wrong protocol type name. Please use one of the following:\
                string|integer|double|bignum|null|array|set|map|attrib|push|verbatim|true|false"
        }
    }
}

start_server {overrides {requirepass secret} tags {protocol}} {
    test "without authentication a request may be small only" {
        set ::noauth "-NOAUTH Authentication required.\r\n"
        set c [new_client]
        assert_error "NOAUTH Authentication required." {$c get a}
        $c -write "*11\r\n"
        assert_equal "-ERR Protocol error: unauthenticated multibulk length" [$c -readline]
        assert_closed $c
        set c [new_client]
        $c -write "*1\r\n\$16385\r\n"
        assert_equal "-ERR Protocol error: unauthenticated bulk length" [$c -readline]
        assert_closed $c
        set c [new_client]
        $c -write "*10\r\n\$1\r\na\r\n[string repeat "\$1\r\nb\r\n" 9]"
        assert_equal "-NOAUTH Authentication required." [$c -readline]
        assert_error "NOAUTH Authentication required." {$c echo [string repeat x 16384]}
    }

    test "after authentication the limits are gone" {
        set c [new_client]
        $c auth secret
        assert_equal 0 [$c del {*}[lrepeat 100 x]]
        assert_equal [set long [numbered 100000]] [$c echo $long]
    }

    test "a reset connection is limited again" {
        set c [new_client]
        $c auth secret
        $c reset
        $c -write "*11\r\n"
        assert_equal "-ERR Protocol error: unauthenticated multibulk length" [$c -readline]
    }
}

start_server {} {
    # The kernel resets a socket that is closed with unread input, and drops its unsent output. So the replies before
    # the error are large, and the client reads only after the server has closed the connection.
    test "the reply to a protocol error arrives, whatever was sent behind it" -tags tcp-only {
        set large [string repeat x 100000]
        r set large $large
        foreach half_closed {0 1} {
            set c [new_client]
            set id [$c client id]
            $c -write "[string repeat "get large\r\n" 8]*1\r\nbroken\r\n[string repeat "ping\r\n" 30000]"
            $c -flush
            if {$half_closed} {chan close [$c -fd] write}
            set reply "\$100000\r\n$large\r\n"
            for {set i 0} {$i < 8} {incr i} {assert {[$c -readraw [string length $reply]] eq $reply}}
            assert_equal "-ERR Protocol error: expected '$', got 'b'" [$c -readline]
            assert_closed $c
            assert_equal "" [r client list id $id]
        }
    }

    test "a request whose lines do not end in CR LF is rejected immediately" {
        foreach {bytes reply} {
            "*1\r\n\$4\r\nPINGxx\r\n"                CRLF
            "*2\r\n\$4\r\nECHO\r\n\$3\r\nabcd\r\n"  CRLF
            "*1\rx\$4\r\nPING\r\n"                  CRLF
            "*1\r\n\$4\rxPING\r\n"                  CRLF
            "*1\r\n\$4\r\nPING\rx"                  CRLF
            "*1\r\n\$4\r\nPING\n\n"                CRLF
            "*0\rxPING\r\n"                         CRLF
            "*-1\rxPING\r\n"                        CRLF
            "*\rxPING\r\n"                          CRLF
            "*x\rx"                                  CRLF
            "*1\r\r\n\$4\r\nPING\r\n"             CRLF
            "*2000000000\rx"                         CRLF
            "*1\r\n\$999999999999\rx"               CRLF
            "*1\r\n+4\rxPING\r\n"                 "expected '\$', got '+'"
            "*1x\r\n"                               "invalid multibulk length"
            "*1\n\$4\r\nPING\r\n"                  "invalid multibulk length"
            "*1\r\n\$4\nPING\r\n"                  "invalid bulk length"
        } {
            set c [new_client]
            $c -write $bytes
            if {$reply eq "CRLF"} {set reply "invalid CRLF in request"}
            assert_equal "-ERR Protocol error: $reply" [$c -readline] $bytes
            assert_closed $c
        }
        # The same with a large argument, which is received separately.
        set c [new_client]
        $c -write "*2\r\n\$4\r\nECHO\r\n\$100000\r\n[string repeat x 100000]yz"
        assert_equal "-ERR Protocol error: invalid CRLF in request" [$c -readline]
        assert_closed $c
    }

    test "a word of an inline request may be quoted in part" {
        set c [new_client]
        foreach {words value} {{"b"c} bc {'b'c} bc {b"c"} bc {b"c"d'e'} bcde {""c} c {"b"'c'} bc {"\x41"B} AB} {
            $c -write "set word $words\r\n"
            assert_equal +OK [$c -readline] $words
            assert_equal $value [r get word]
        }
        $c -write "set word \"b\r\n"
        assert_equal "-ERR Protocol error: unbalanced quotes in request" [$c -readline]
        assert_closed $c
    }
}
