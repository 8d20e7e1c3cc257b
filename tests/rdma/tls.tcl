# TLS over RDMA: certificates and their users, versions, sessions, reloading, clear text beside it, large values,
# pipelines, pushes, slow peers, threads, and peers that break the rules. seconds: 16

# Programs may exist from another build.
if {[skip_without_tls "TLS over RDMA" tls-proxy]} return

# A server with TLS on its RDMA port; `r` is a client over TCP. `overrides` come last.
proc start_rdma_tls {overrides body} {
    set settings [dict merge [list rdma-bind $::opt(rdma_host) rdma-port [free_port] tls-rdma yes \
        tls-cert-file [crt server.crt] tls-key-file [crt server.key] tls-ca-cert-file [crt ca.crt]] $overrides]
    uplevel 1 [list start_server [list no_rdma 1 overrides $settings tags tls] $body]
}
proc rdma_port {} {config_get rdma-port}

# valkey-cli over RDMA with TLS: {code output-with-errors}.
proc tls_cli {certificate args} {
    set own {}
    if {$certificate ne ""} {set own [list --cert [crt $certificate.crt] --key [crt $certificate.key]]}
    set got [run {*}$::opt(launcher) [tool valkey-cli] -h $::opt(rdma_host) -p [rdma_port] --rdma --tls \
        --cacert [crt ca.crt] {*}$own {*}$args]
    return [list [dict get $got code] [string trim [dict get $got out][dict get $got err]]]
}
proc clear_cli {args} {
    set got [run {*}$::opt(launcher) [tool valkey-cli] -h $::opt(rdma_host) -p [rdma_port] --rdma {*}$args]
    return [list [dict get $got code] [string trim [dict get $got out][dict get $got err]]]
}
# A proxy whose connections are TLS over RDMA: {process id, port}.
proc tls_proxy_open {{certificate client}} {
    lassign [open_beside {*}$::opt(launcher) [tool tls-proxy] --listen-port 0 --transport rdma-tls \
        --host $::opt(rdma_host) --port [rdma_port] --cacert [crt ca.crt] --cert [crt $certificate.crt] \
        --key [crt $certificate.key]] pid chan
    regexp {ready (\d+)} [line_of $chan "the proxy"] -> port
    return [list $pid $port]
}
proc tls_proxy_start {args} {lindex [tls_proxy_open {*}$args] 1}
# A proxy that carries bytes over RDMA and knows nothing of TLS: for openssl(1), and for peers that break the rules.
proc plain_proxy_start {} {lindex [own_proxy -port [rdma_port]] 1}
proc s_client {port input args} {
    set got [run -stdin $input [tool openssl] s_client -connect 127.0.0.1:$port -CAfile [crt ca.crt] \
        -cert [crt client.crt] -key [crt client.key] {*}$args]
    return [dict get $got out][dict get $got err]
}

test "the server does not start with tls-rdma and without a certificate" {
    set got [run_server --port 0 --rdma-port [free_port] --rdma-bind $::opt(rdma_host) --tls-rdma yes \
        --dir $::unit_dir]
    assert_equal 1 [dict get $got code]
    assert_match "*# No tls-cert-file configured!*# Failed to configure TLS. Check logs for more info.*" \
        [dict get $got out]
}

start_rdma_tls {tls-auth-clients no} {
    test "a client connects by TLS over RDMA and sees so" {
        assert_equal {0 PONG} [tls_cli "" ping]
        lassign [tls_cli "" client list] code line
        set fields [client_fields [lindex [split $line \n] end]]
        assert_equal {rdma-tls default TLSv1.3} [list [dict get $fields transport] [dict get $fields user] \
            [dict get $fields tls]]
        assert_equal "name=rdma-tls,bind=$::opt(rdma_host),port=[rdma_port]" [info_field server listener3]
        assert {[log_has "Ready to accept connections rdma-tls"]}
        assert {![log_has "not encrypted"]}
        assert_morethan [info_field tls tls_handshakes] 1
    }

    test "clear text is refused" {
        set failed [info_field tls tls_handshakes_failed]
        r config set loglevel verbose
        set from [log_size]
        assert_match {1 *} [clear_cli ping]
        set port [plain_proxy_start]
        assert {[plain_peer_closed $port "*1\r\n\$4\r\nPING\r\n"]}
        assert {[plain_peer_closed $port "GET / HTTP/1.1\r\n\r\n"]}
        assert {[plain_peer_closed $port [string repeat \x16\x03\x01\xff 5000]]}
        wait_for_condition 5000 {[info_field tls tls_handshakes_failed] == $failed + 4}
        assert_match "*Error accepting a client connection: error:*:SSL routines:*addr=$::opt(rdma_host):*" \
            [log_text $from]
        r config set loglevel notice
        assert_equal {0 PONG} [tls_cli "" ping]
    }

    test "the client verifies the server" {
        set to [list -h $::opt(rdma_host) -p [rdma_port] --rdma --tls]
        set got [run {*}$::opt(launcher) [tool valkey-cli] {*}$to --cacert [crt foreign-ca.crt] ping]
        assert_equal 1 [dict get $got code]
        assert_match "*certificate verify failed*" [dict get $got err]
        set got [run {*}$::opt(launcher) [tool valkey-cli] {*}$to --insecure ping]
        assert_equal "PONG\n" [dict get $got out]
    }

    # 30 KB: more than OpenSSL may read in one call.
    test "a handshake with long certificates of both ends completes" {
        set names IP:127.0.0.1
        for {set i 0} {$i < 600} {incr i} {append names ,DNS:[format host-%05d.some.long.domain.of.an.example.test $i]}
        write_file [crt long.ext] "subjectAltName=$names\n"
        foreach arguments [list [list req -new -key [crt server.key] -subj /CN=long -out [crt long.csr]] \
            [list x509 -req -in [crt long.csr] -sha256 -days 1 -CA [crt ca.crt] -CAkey [crt ca.key] -set_serial 99 \
                -extfile [crt long.ext] -out [crt long.crt]]] {
            set got [run [tool openssl] {*}$arguments]
            assert_equal 0 [dict get $got code] [dict get $got err]
        }
        file copy -force [crt server.key] [crt long.key]
        assert_morethan [file size [crt long.crt]] 30000
        r config set tls-cert-file [crt long.crt] tls-auth-clients yes
        assert_equal {0 PONG} [tls_cli client ping]
        assert_equal {0 PONG} [tls_cli long ping]
        set c [new_client -port [tls_proxy_start long]]
        foreach value [list [numbered 100000] small] {
            $c set key $value
            assert_equal $value [$c get key]
        }
        r config set tls-cert-file [crt server.crt] tls-auth-clients no
    }

    test "a client that is killed behind QUIT leaves nothing" {
        r set big [numbered 5000000]
        lassign [tls_proxy_open] pid port
        set c [new_client -host 127.0.0.1 -port $port]
        set id [$c client id]
        for {set i 0} {$i < 20} {incr i} {$c -send get big}
        $c -send quit
        wait_for_condition 5000 {[regexp {flags=c} [r client list id $id]]}
        kill_process KILL $pid
        wait_for_condition 5000 {[r client list id $id] eq ""}
        catch {$c -close}
        r del big
    }

    test "the base protocol carries TLS as well" {
        set value [string repeat 0123456789abcdef 100000]
        r set large $value
        assert_equal [list 0 $value] [tls_cli "" --rdma-base-protocol get large]
        lassign [tls_cli "" --rdma-base-protocol client info] code line
        assert_equal none [dict get [client_fields $line] rdma-features]
    }

    test "the buffer grows for a large value, however slowly it comes" -needs $::without_threads {
        set c [new_client -port [tls_proxy_start]]
        $c -write "*3\r\n\$3\r\nSET\r\n\$5\r\nlarge\r\n\$3000000\r\n"
        for {set sent 0} {$sent < 3000000} {incr sent 100000} {
            $c -write [string repeat x 100000]
            after 2 ;# longer than it takes a peer in a hurry to fill a small buffer
        }
        $c -write "\r\n"
        assert_equal OK [$c -read]
        assert_equal 1048576 [dict get [client_fields [$c client info]] rx]
    }

    test "values around the size of a record pass both ways, in one pipeline" {
        set c [new_client -port [tls_proxy_start]]
        set expected {}
        set n 0
        foreach size {0 1 64 2047 2048 16383 16384 16385 32768 65535 65536 65537 131072 1048576 3000001} {
            foreach step {-7 0 7} {
                if {$size + $step < 0} continue
                set value [numbered [expr {$size + $step}] [incr n]]
                $c -send set k$n $value
                $c -send get k$n
                lappend expected OK $value
            }
        }
        foreach value $expected {assert_equal $value [$c -read]}
        for {set i 1} {$i <= $n} {incr i} {
            assert_equal [r get k$i] [lindex $expected [expr {2 * $i - 1}]]
        }
    }

    test "a pipeline of small requests, and pushes to subscribers" {
        set port [tls_proxy_start]
        set c [new_client -port $port]
        for {set i 0} {$i < 5000} {incr i} {$c -send incr counter}
        for {set i 1} {$i <= 5000} {incr i} {assert_equal $i [$c -read]}
        set subscribers {}
        for {set i 0} {$i < 20} {incr i} {
            lappend subscribers [set s [new_client -port $port]]
            assert_equal {subscribe news 1} [$s subscribe news]
        }
        for {set i 0} {$i < 50} {incr i} {assert_equal 20 [r publish news "message $i"]}
        foreach s $subscribers {
            for {set i 0} {$i < 50} {incr i} {assert_equal [list message news "message $i"] [$s -read]}
        }
    }

    test "a peer that does not read holds up nobody, and gets all when it reads" {
        r set blob [string repeat 0123456789 100000]
        set slow [new_client -port [tls_proxy_start]]
        for {set i 0} {$i < 60} {incr i} {$slow -send get blob}
        wait_for_condition 10000 {[regexp { omem=[1-9]\d+ [^\n]*transport=rdma-tls} [r client list]]}
        assert_equal {0 PONG} [tls_cli "" ping]
        set expected [r get blob]
        for {set i 0} {$i < 60} {incr i} {assert_equal $expected [$slow -read]}
    }

    test "the benchmark works, with threads and pipelines" {
        set got [run -timeout 60 {*}$::opt(launcher) [tool valkey-benchmark] -h $::opt(rdma_host) -p [rdma_port] \
            --rdma --tls --cacert [crt ca.crt] -n [scaled 10000 2000] -c 20 -P 8 --threads 2 -d 2000 -q -t set,get]
        assert_equal 0 [dict get $got code] $got
        assert_match "*GET: * requests per second*" [dict get $got out]
    }

    test "versions, ciphers, and sessions that are resumed" {
        set port [plain_proxy_start]
        assert_match "*Protocol*: TLSv1.2*" [s_client $port "" -tls1_2]
        assert_match "*TLSv1.3*" [s_client $port "" -tls1_3]
        assert_match "*alert protocol version*" [s_client $port "" -tls1_1 -cipher ALL:@SECLEVEL=0]
        r config set tls-protocols TLSv1.3 tls-ciphersuites TLS_CHACHA20_POLY1305_SHA256
        assert_match "*alert protocol version*" [s_client $port "" -tls1_2]
        assert_match "*Cipher is TLS_CHACHA20_POLY1305_SHA256*" [s_client $port "" -tls1_3]
        r config set tls-protocols "" tls-ciphersuites ""
        set file [file join [srv dir] session]
        foreach {caching word} {yes Reused no New} {
            r config set tls-session-caching $caching
            foreach version {-tls1_2 -tls1_3} {
                s_client $port "PING\r\nQUIT\r\n" $version -quiet -sess_out $file
                set resumed [info_field tls tls_handshakes_resumed]
                set in {}
                if {[file exists $file]} {set in [list -sess_in $file]}
                assert_match "*$word, TLSv*" [s_client $port "" $version {*}$in]
                # The server ends the handshake after the client does.
                if {$caching eq "yes"} {incr resumed}
                wait_for_condition 5000 {[info_field tls tls_handshakes_resumed] == $resumed}
                file delete $file
            }
        }
        r config set tls-session-caching yes
    }

    test "CONFIG SET replaces the certificate for new connections" {
        set old [new_client -port [tls_proxy_start]]
        $old ping
        r config set tls-cert-file [crt foreign.crt] tls-key-file [crt foreign.key]
        assert_match {1 *certificate verify failed*} [tls_cli "" ping]
        assert_equal PONG [$old ping]
        r config set tls-cert-file [crt server.crt] tls-key-file [crt server.key]
        assert_equal {0 PONG} [tls_cli "" ping]
    }

    test "CONFIG SET tls-rdma changes what new connections must speak" {
        r config set tls-rdma no
        assert_equal {0 PONG} [clear_cli ping]
        assert_match {1 *} [tls_cli "" ping]
        assert_match "name=rdma,bind=*" [info_field server listener3]
        r config set tls-rdma optional
        assert_equal {0 PONG} [clear_cli ping]
        assert_equal {0 PONG} [tls_cli "" ping]
        r config set tls-rdma yes
        assert_match {1 *} [clear_cli ping]
        assert_equal {0 PONG} [tls_cli "" ping]
        assert_error_like "*argument(s) must be one of the following: no, yes, optional" {r config set tls-rdma maybe}
        # If the listener cannot be opened, the one of before comes back as it was.
        assert_error_like "ERR CONFIG SET failed*" {r config set tls-rdma no rdma-bind 192.0.2.1}
        assert_equal yes [config_get tls-rdma]
        assert_match {1 *} [clear_cli ping]
        assert_equal {0 PONG} [tls_cli "" ping]
    }
}

start_rdma_tls {tls-auth-clients no tls-rdma optional tls-handshake-timeout-ms 60000} {
    test "tls-rdma optional: the first byte decides, and a silent peer counts as clear text in the end" {
        assert_equal {0 PONG} [clear_cli ping]
        assert_equal {0 PONG} [tls_cli "" ping]
        assert_match "* transport=rdma *" [lindex [clear_cli client info] 1]
        assert_match "* transport=rdma-tls *" [lindex [tls_cli "" client info] 1]
        set value [string repeat 0123456789abcdef 100000]
        r set large $value
        assert_equal [list 0 $value] [clear_cli get large]
        set port [plain_proxy_start]
        # A first byte of TLS that arrives alone.
        set fd [socket 127.0.0.1 $port]
        fconfigure $fd -translation binary -blocking 0 -buffering none
        puts -nonewline $fd \x16
        wait_for_condition 5000 {[info_field tls tls_handshakes_pending] == 1}
        puts -nonewline $fd "PING\r\n"
        close $fd
        wait_for_condition 5000 {[info_field tls tls_handshakes_pending] == 0}
        r config set tls-handshake-timeout-ms 100
        set fd [socket 127.0.0.1 $port]
        fconfigure $fd -translation binary -blocking 0 -buffering none
        wait_for_condition 5000 {[regexp {transport=rdma } [r client list]]}
        puts -nonewline $fd "PING\r\n"
        wait_for_condition 5000 {[read $fd] eq "+PONG\r\n"}
        close $fd
    }
}

start_rdma_tls {requirepass secret} {
    r auth secret
    test "client certificates and their users" {
        assert_match {1 *} [tls_cli "" ping]
        assert_equal {0 PONG} [tls_cli client --no-auth-warning -a secret ping]
        assert_match {1 *} [tls_cli foreign --no-auth-warning -a secret ping]
        assert_match {* {NOAUTH *}} [tls_cli client ping]
        r config set tls-auth-clients-user CN
        assert_equal {0 PONG} [tls_cli client ping]
        assert_match {* {NOAUTH *}} [tls_cli other ping]
        assert_equal 1 [info_field stats acl_access_denied_tls_cert]
        r config set tls-auth-clients-user URI
        assert_match {* {NOAUTH *}} [tls_cli client ping]
        r config set tls-auth-clients-user CN
        r acl setuser nobody on +ping
        assert_equal {0 PONG} [tls_cli other ping]
        assert_match {* {NOPERM User nobody has no permissions to run the 'get' command*}} [tls_cli other get k]
        r config set tls-auth-clients-user off
        assert_match {* {NOAUTH *}} [tls_cli client ping]
    }
}

foreach mode {yes optional} {
    start_rdma_tls [list tls-auth-clients optional io-threads 3 tls-auth-clients-user CN requirepass secret \
        tls-rdma $mode] {
        r auth secret
        test "I/O threads make handshakes, decrypt and encrypt: tls-rdma $mode" {
            assert_equal {0 PONG} [tls_cli client ping]
            assert_match {* {NOAUTH *}} [tls_cli "" ping]
            assert_equal [expr {$mode eq "optional" ? "0 PONG" : 1}] \
                [lrange [clear_cli --no-auth-warning -a secret ping] 0 [expr {$mode eq "optional" ? 1 : 0}]]
            set got [run -timeout 60 {*}$::opt(launcher) [tool valkey-benchmark] -h $::opt(rdma_host) -p [rdma_port] \
                --rdma --tls --cacert [crt ca.crt] -a secret -n [scaled 10000 2000] -c 20 -P 8 -d 30000 -q -t set,get]
            assert_equal 0 [dict get $got code] $got
            set port [tls_proxy_start]
            set clients {}
            for {set i 0} {$i < 8} {incr i} {lappend clients [new_client -port $port]}
            set n 0
            foreach c $clients {
                incr n
                assert_equal PONG [$c ping]
                $c set k$n [numbered 300000 $n]
                $c -send get k$n
                $c -send incr counter
            }
            set n 0
            foreach c $clients {
                assert_equal [numbered 300000 [incr n]] [$c -read]
                assert_equal $n [$c -read]
            }
        }
    }
}

start_rdma_tls {tls-auth-clients no tls-handshake-timeout-ms 60000 loglevel verbose} {
    test "silent peers are closed after tls-handshake-timeout-ms" {
        set port [plain_proxy_start]
        r config set tls-handshake-timeout-ms 100
        assert {[plain_peer_closed $port ""]}
        assert {[plain_peer_closed $port "\x16\x03"]}
        r config set tls-handshake-timeout-ms 60000
        set fd [socket 127.0.0.1 $port]
        wait_for_condition 5000 {[info_field tls tls_handshakes_pending] == 1}
        close $fd
        wait_for_condition 5000 {[info_field tls tls_handshakes_pending] == 0}
    }

    test "handshakes that never end count against maxclients, hold up nobody, and end" {
        set port [plain_proxy_start]
        set held {}
        for {set i 0} {$i < 200} {incr i} {lappend held [socket 127.0.0.1 $port]}
        foreach fd [lrange $held 0 99] {
            fconfigure $fd -translation binary -buffering none
            puts -nonewline $fd "\x16\x03\x01\x02"
        }
        wait_for_condition 10000 {[info_field tls tls_handshakes_pending] == 200}
        assert_equal {0 PONG} [tls_cli "" ping]
        r config set maxclients 201
        at_test_end {r config set maxclients 10000}
        assert_not_equal 0 [lindex [tls_cli "" ping] 0]
        foreach fd $held {close $fd}
        wait_for_condition 10000 {[info_field tls tls_handshakes_pending] == 0}
        assert_equal {0 PONG} [tls_cli "" ping]
    }

    test "1,024 handshakes are held, and a further one takes the place of the oldest silent one" \
        -timeout 240 -needs $::on_software_device {
        set from [log_size]
        r config set tls-handshake-timeout-ms 3600000 ;# none ends while others are made, however long that takes
        at_test_end {r config set tls-handshake-timeout-ms 60000}
        lassign [open_beside {*}$::opt(launcher) [tool rdma-hostile] --host $::opt(rdma_host) --port [rdma_port] \
            --hold idle --cases 1024] pid chan
        wait_for_condition 120000 {[info_field tls tls_handshakes_pending] == 1024}
        # The last one may have come in this second, the first one has not.
        wait_for_condition 60000 {[tls_cli "" ping] eq {0 PONG}}
        wait_for_log "replaced by another handshake, because too many are in progress" $from
        assert_equal 1023 [info_field tls tls_handshakes_pending]
        set from [log_size]
        assert_equal {0 PONG} [tls_cli "" ping] ;# a handshake that has ended has made room
        assert {![log_has "too many" $from]}
        assert_equal 1023 [info_field tls tls_handshakes_pending]
        kill_process KILL $pid
        wait_for_condition 60000 {[info_field tls tls_handshakes_pending] == 0}
        assert_equal {0 PONG} [tls_cli "" ping]
    }

    test "a handshake beyond the limit is refused with its reason while all others are young" {
        r debug rdma tls-handshakes 3
        at_test_end {r debug rdma tls-handshakes 1024}
        assert_equal "-ERR value is not an integer or out of range" [r -typed debug rdma tls-handshakes 0]
        set port [plain_proxy_start]
        set from [log_size]
        # Until four of them come within a second.
        wait_for_condition 20000 {
            [apply {{port from} {
                set fds {}
                for {set i 0} {$i < 4} {incr i} {lappend fds [socket 127.0.0.1 $port]}
                wait_for_condition 10000 {[info_field tls tls_handshakes_pending] == 3}
                foreach fd $fds {close $fd}
                wait_for_condition 10000 {[info_field tls tls_handshakes_pending] == 0}
                log_has "refused, because too many handshakes are in progress (addr=" $from
            }} $port $from]
        }
        assert_equal {0 PONG} [tls_cli "" ping]
    }

    # A relay between a TLS client and the server, which changes the stream to the server: returns what the client got.
    # With `may_stall` the relay closes both ends when they have been silent for a moment.
    proc through_relay {change requests {may_stall false}} {
        set far [plain_proxy_start]
        set ::relay_peer ""
        set listener [socket -server {apply {{chan args} {set ::relay_peer $chan}}} -myaddr 127.0.0.1 0]
        set listening [lindex [fconfigure $listener -sockname] 2]
        set cli [spawn [tool valkey-cli] -h 127.0.0.1 -p $listening --tls --cacert [crt ca.crt] {*}$requests]
        wait_for_condition 10000 {[update; set ::relay_peer] ne ""}
        set server [socket 127.0.0.1 $far]
        foreach chan [list $server $::relay_peer] {fconfigure $chan -translation binary -blocking 0 -buffering none}
        set seen 0
        set end [resp::deadline [expr {$may_stall ? 1000 : 10000}]]
        while {![eof $server] && ![eof $::relay_peer]} {
            if {[clock milliseconds] > $end} {
                if {$may_stall} break
                fail "neither end has closed"
            }
            if {[catch {
                set bytes [read $::relay_peer]
                if {$bytes ne ""} {
                    puts -nonewline $server [uplevel 1 [list apply $change $seen $bytes]]
                    incr seen [string length $bytes]
                }
                puts -nonewline $::relay_peer [read $server]
            }]} break
            after 1
        }
        foreach chan [list $server $::relay_peer $listener] {catch {close $chan}}
        return [spawn_wait $cli 20000]
    }

    test "a changed record ends its connection, whatever byte is changed" {
        assert_equal "OK\n" [dict get [through_relay {{seen bytes} {set bytes}} {set key value}] out]
        r set key before
        # The last bytes are a record of application data: SET.
        foreach back {1 8 20 40 55} {
            set change [format {{seen bytes} {
                if {![regexp -indices {\x17\x03\x03...*$} $bytes]} {return $bytes}
                set at [expr {[string length $bytes] - %d}]
                if {$at < 5} {return $bytes}
                scan [string index $bytes $at] %%c code
                string replace $bytes $at $at [format %%c [expr {$code ^ 1}]]
            }} $back]
            assert_not_match "OK*" [dict get [through_relay $change {set key changed}] out]
            assert_equal before [r get key]
        }
        assert_equal {0 PONG} [tls_cli "" ping]
    }

    test "a repeated record is not executed twice" {
        through_relay {{seen bytes} {expr {$seen ? "$bytes$bytes" : $bytes}}} {incr counter}
        assert_range [r incr counter] 1 2
        assert_equal {0 PONG} [tls_cli "" ping]
    }

    test "a truncated or oversized record, or clear text behind one, is not executed" {
        r set key before
        foreach {what change} {
            truncated {{seen bytes} {expr {$seen ? [string range $bytes 0 end-3] : $bytes}}}
            oversized {{seen bytes} {expr {$seen ? "\x17\x03\x03\xff\xff$bytes" : $bytes}}}
            other {{seen bytes} {expr {$seen ? "*1\r\n\$8\r\nFLUSHALL\r\n" : $bytes}}}
        } {
            # The server waits for the rest of a record.
            set got [through_relay $change {set key changed} [expr {$what eq "truncated"}]]
            assert_not_match "OK*" [dict get $got out] $what
            assert_equal before [r get key] $what
        }
        assert_equal {0 PONG} [tls_cli "" ping]
    }
}
