# TLS: certificates, client certificates and their users, versions, sessions, reloading, and invalid peers. seconds: 26

# The proxy may exist from another build.
if {[skip_without_tls "TLS" tls-proxy]} return

# A server with a TLS port; `overrides` come last.
proc start_tls_server {overrides body} {
    set port [free_port]
    set settings [dict merge [list tls-port $port tls-cert-file [crt server.crt] tls-key-file [crt server.key] \
        tls-ca-cert-file [crt ca.crt]] $overrides]
    uplevel 1 [list start_server [list no_rdma 1 overrides $settings tags tls] $body]
}
proc tls_port {} {config_get tls-port}

# valkey-cli over TLS: {code output-with-errors}.
proc tls_cli {certificate args} {
    set own {}
    if {$certificate ne ""} {set own [list --cert [crt $certificate.crt] --key [crt $certificate.key]]}
    set got [run [tool valkey-cli] -h 127.0.0.1 -p [tls_port] --tls --cacert [crt ca.crt] {*}$own {*}$args]
    return [list [dict get $got code] [string trim [dict get $got out][dict get $got err]]]
}
# Runs openssl s_client with `input` and returns its output.
proc s_client {input args} {
    set got [run -stdin $input [tool openssl] s_client -connect 127.0.0.1:[tls_port] -CAfile [crt ca.crt] \
        -cert [crt client.crt] \
        -key [crt client.key] {*}$args]
    return [dict get $got out][dict get $got err]
}
set reason "Unable to update TLS configuration. Check server logs."
proc refused_set {args} {
    assert_error_like "ERR CONFIG SET failed (possibly related to argument '[lindex $args 0]') - $::reason" \
        {r config set {*}$args}
}

test "the server does not start without what a TLS port needs" {
    foreach {settings why} {
        {} {No tls-cert-file configured!}
        {tls-cert-file server.crt} {No tls-key-file configured!}
        {tls-cert-file server.crt tls-key-file server.key}\
            {Either tls-ca-cert-file or tls-ca-cert-dir must be specified *}
        {tls-cert-file nosuch.crt tls-key-file server.key tls-ca-cert-file ca.crt}\
            {Failed to load certificate: *nosuch.crt: error:*No such file or directory}
        {tls-cert-file server.crt tls-key-file client.key tls-ca-cert-file ca.crt}\
            {Failed to load private key: *client.key: error:*key values mismatch}
        {tls-cert-file server.crt tls-key-file locked.key tls-ca-cert-file ca.crt}\
            {Failed to load private key: *locked.key: error:*}
    } {
        set words [list --port 0 --tls-port [free_port] --dir $::unit_dir]
        foreach {name file} $settings {lappend words --$name [crt $file]}
        set got [run_server {*}$words]
        assert_equal 1 [dict get $got code]
        assert_match "*# $why*# Failed to configure TLS. Check logs for more info.*" [dict get $got out]
    }
}

start_tls_server {tls-auth-clients no} {
    test "a client connects by TLS and sees so" {
        assert_equal {0 PONG} [tls_cli "" ping]
        lassign [tls_cli "" client list] code line
        set fields [client_fields [lindex [split $line \n] end]]
        assert_equal {tls default} [list [dict get $fields transport] [dict get $fields user]]
        assert_match TLSv1.* [dict get $fields tls]
        assert_equal "name=tls,bind=127.0.0.1,port=[tls_port]" [info_field server listener2]
        assert {[log_has "Ready to accept connections tls"]}
    }

    test "large values pass both ways" {
        set value [string repeat 0123456789abcdef 100000]
        r set large $value
        assert_equal $value [lindex [tls_cli "" get large] 1]
        set got [run -stdin $value [tool valkey-cli] -p [tls_port] --tls --cacert [crt ca.crt] -x set large2]
        assert_equal OK [string trim [dict get $got out]]
        assert_equal $value [r get large2]
    }

    test "DEBUG FORCE-TLS-WRITE-ERROR holds back what is sent over TLS until it is switched off" \
        -needs {version 9.1} {
        set plain [new_client -tcp 1]; # `r` itself may be connected by TLS
        set port [tls_port]
        foreach {bad error} {2 "ERR Value must be 0 or 1" x "ERR value is not an integer or out of range"} {
            assert_error $error {$plain debug force-tls-write-error $bad}
        }
        at_test_end [list $plain debug force-tls-write-error 0]
        assert_equal OK [$plain debug force-tls-write-error 1]
        set held [spawn [tool valkey-cli] -h 127.0.0.1 -p $port --tls --cacert [crt ca.crt] echo held]
        wait_for_condition 20000 {[regexp { obl=10 [^\n]* cmd=echo [^\n]*transport=tls} [$plain client list]]}
        assert_equal OK [$plain debug force-tls-write-error 0]
        assert_equal "held\n" [dict get [spawn_wait $held 20000] out]
    }

    test "the client verifies the server" {
        foreach {options pattern} \
            [list [list --cacert [crt foreign-ca.crt]] "*certificate verify failed*" {} "*certificate verify failed*"] {
            set got [run [tool valkey-cli] -p [tls_port] --tls {*}$options ping]
            assert_equal 1 [dict get $got code]
            assert_match "Could not connect to Valkey at 127.0.0.1:[tls_port]: $pattern" [dict get $got err]
        }
        assert_equal "PONG\n" [dict get [run [tool valkey-cli] -p [tls_port] --tls --insecure ping] out]
        assert_equal "PONG\n" [dict get \
            [run [tool valkey-cli] -u valkeys://127.0.0.1:[tls_port] --cacert [crt ca.crt] ping] out]
    }

    test "options of the tools that do not fit are refused" {
        foreach {options pattern} [list [list --cert [crt client.crt]] "--cert and --key belong together*" \
            [list --cacert /nosuch] "Failed to configure CA certificate(s) file/directory: /nosuch: *" \
            {--tls-ciphers bogus} "Failed to configure ciphers: bogus*"\
            {-s /nosuch} "TLS needs TCP or RDMA: use --tls without a Unix socket*"] {
            set got [run [tool valkey-cli] -p [tls_port] --tls {*}$options ping]
            assert_equal 1 [dict get $got code]
            assert_match $pattern [dict get $got err]
        }
    }

    test "the benchmark works over TLS, with threads and pipelines" {
        set got [run -timeout 60 [tool valkey-benchmark] -p [tls_port] --tls --cacert [crt ca.crt] \
            -n [scaled 20000 2000] -c 20 -P 8 --threads 2 \
            -d 2000 -q -t set,get]
        assert_equal 0 [dict get $got code] $got
        assert_match "*GET: * requests per second*" [dict get $got out]
    }

    test "INFO counts certificates and handshakes" {
        foreach {name field} {server server_cert ca ca_cert} {
            assert_regexp {^[0-9A-F]{16,}$} [info_field tls tls_${field}_serial]
            assert_range [info_field tls tls_${field}_expires_in_seconds] 80000 180000
        }
        assert_equal none [info_field tls tls_client_cert_serial]
        assert_morethan [info_field tls tls_handshakes] 20
        assert_equal 0 [info_field tls tls_handshakes_pending]
    }

    test "peers that speak no TLS are closed and counted" {
        set failed [info_field tls tls_handshakes_failed]
        r config set loglevel verbose
        set from [log_size]
        assert {[plain_peer_closed [tls_port] "*1\r\n\$4\r\nPING\r\n"]}
        assert {[plain_peer_closed [tls_port] "GET / HTTP/1.1\r\n\r\n"]}
        assert {[plain_peer_closed [tls_port] [string repeat \x16\x03\x01\xff 5000]]}
        assert_equal [expr {$failed + 3}] [info_field tls tls_handshakes_failed]
        assert_match "*Error accepting a client connection: error:*:SSL routines:*(addr=127.0.0.1:*\
            laddr=127.0.0.1:[tls_port])*" [log_text $from]
        r config set loglevel notice
    }

    test "a silent peer is closed after tls-handshake-timeout-ms" {
        r config set tls-handshake-timeout-ms 100
        assert {[plain_peer_closed [tls_port] ""]}
        r config set tls-handshake-timeout-ms 60000
        set fd [socket 127.0.0.1 [tls_port]]
        wait_for_condition 5000 {[info_field tls tls_handshakes_pending] == 1}
        close $fd
        wait_for_condition 5000 {[info_field tls tls_handshakes_pending] == 0}
    }

    test "peers within their handshake count against maxclients" {
        r config set maxclients 3
        at_test_end {r config set maxclients 10000}
        set held {}
        while {[info_field clients connected_clients] + [llength $held] < 3} {
            lappend held [socket 127.0.0.1 [tls_port]]
        }
        wait_for_condition 5000 {[info_field tls tls_handshakes_pending] == [llength $held]}
        # The server closes further connections before their handshake, so it cannot send the reason.
        assert_not_match "*ERR max number of clients reached*" [tls_cli "" ping]
        set rejected [info_field stats rejected_connections]
        assert {[plain_peer_closed [tls_port] ""]}
        assert_equal [expr {$rejected + 1}] [info_field stats rejected_connections]
        foreach fd $held {close $fd}
        wait_for_condition 5000 {[info_field tls tls_handshakes_pending] == 0 &&\
            [info_field clients connected_clients] < 3}
        assert_equal {0 PONG} [tls_cli "" ping]
    }

    test "versions: 1.2 and 1.3 by default, fewer or older ones on request" {
        assert_match "*Protocol*: TLSv1.2*" [s_client "" -tls1_2]
        assert_match "*TLSv1.3*" [s_client "" -tls1_3]
        assert_match "*alert protocol version*" [s_client "" -tls1_1 -cipher ALL:@SECLEVEL=0]
        r config set tls-protocols TLSv1.3
        assert_match "*alert protocol version*" [s_client "" -tls1_2]
        r config set tls-protocols "TLSv1.1 TLSv1.2" tls-ciphers DEFAULT:@SECLEVEL=0
        assert_match "*Protocol*: TLSv1.1*" [s_client "" -tls1_1 -cipher ALL:@SECLEVEL=0]
        assert_match "*alert protocol version*" [s_client "" -tls1_3]
        r config set tls-protocols "" tls-ciphers ""
    }

    test "ciphers and suites can be chosen" {
        r config set tls-ciphers ECDHE-ECDSA-CHACHA20-POLY1305 tls-ciphersuites TLS_CHACHA20_POLY1305_SHA256
        assert_match "*Cipher is ECDHE-ECDSA-CHACHA20-POLY1305*" [s_client "" -tls1_2]
        assert_match "*Cipher is TLS_CHACHA20_POLY1305_SHA256*" [s_client "" -tls1_3]
        assert_match "*alert handshake failure*" [s_client "" -tls1_2 -cipher ECDHE-ECDSA-AES128-GCM-SHA256]
        r config set tls-ciphers "" tls-ciphersuites "" tls-prefer-server-ciphers yes tls-dh-params-file [crt dh.pem]
        assert_equal {0 PONG} [tls_cli "" ping]
        r config set tls-prefer-server-ciphers no tls-dh-params-file ""
    }

    test "sessions are resumed, unless caching is off" {
        set file [file join [srv dir] session]
        foreach {caching word} {yes Reused no New} {
            r config set tls-session-caching $caching
            foreach version {-tls1_2 -tls1_3} {
                # Reads the reply and the session ticket.
                s_client "PING\r\nQUIT\r\n" $version -quiet -sess_out $file
                set resumed [info_field tls tls_handshakes_resumed]
                set in {}
                if {[file exists $file]} {set in [list -sess_in $file]}
                assert_match "*$word, TLSv*" [s_client "" $version {*}$in]
                # The server ends the handshake after the client does.
                if {$caching eq "yes"} {incr resumed}
                wait_for_condition 5000 {[info_field tls tls_handshakes_resumed] == $resumed}
                file delete $file
            }
        }
        r config set tls-session-caching yes
    }

    test "invalid values are rejected, and the current ones remain" {
        set serial [info_field tls tls_server_cert_serial]
        foreach {name value why} {
            tls-cert-file /nosuch {Failed to load certificate: /nosuch: error:*}
            tls-cert-file {} {No tls-cert-file configured!}
            tls-protocols {TLSv1.2 SSLv9}\
                {Invalid tls-protocols specified. Use a combination of 'TLSv1', 'TLSv1.1', 'TLSv1.2' and 'TLSv1.3'.}
            tls-ciphers bogus {Failed to configure ciphers: bogus}
            tls-ciphersuites bogus {Failed to configure ciphersuites: bogus}
            tls-dh-params-file /nosuch {Failed to load /nosuch: No such file or directory}
            tls-ca-cert-file /nosuch {Failed to configure CA certificate(s) file/directory: /nosuch: *}
        } {
            set from [log_size]
            set before [config_get $name]
            refused_set $name $value
            assert_match "*# $why*" [log_text $from]
            assert_equal $before [config_get $name]
        }
        refused_set tls-key-file [crt client.key]
        assert_equal $serial [info_field tls tls_server_cert_serial]
        assert_equal {0 PONG} [tls_cli "" ping]
    }

    test "the client certificate and its key can be set one after the other" {
        set serial [info_field tls tls_server_cert_serial]
        assert_equal OK [r config set tls-client-cert-file [crt client.crt]]
        assert_equal OK [r config set tls-client-key-file [crt client.key]]
        set own [info_field tls tls_client_cert_serial]
        assert {$own ni [list none $serial]}
        refused_set tls-client-key-file [crt server.key]
        assert_equal $own [info_field tls tls_client_cert_serial]
        assert_equal OK [r config set tls-client-key-file ""]
        assert_equal OK [r config set tls-client-cert-file ""]
        assert_equal none [info_field tls tls_client_cert_serial]
    }

    test "CONFIG SET replaces the certificate for new connections" {
        set serial [info_field tls tls_server_cert_serial]
        r config set tls-cert-file [crt foreign.crt] tls-key-file [crt foreign.key]
        assert_not_equal $serial [info_field tls tls_server_cert_serial]
        assert_match {1 *certificate verify failed*} [tls_cli "" ping]
        r config set tls-cert-file [crt chained.crt] tls-key-file [crt locked.key] tls-key-file-pass secret
        assert_equal $serial [info_field tls tls_server_cert_serial]
        assert_equal {0 PONG} [tls_cli "" ping]
        assert_not_match *secret* [log_text]
    }

    test "CONFIG SET with the name of the file in use reads the file again" {
        set own [file join [srv dir] renewed]
        file mkdir $own
        foreach kind {crt key} {file copy [crt server.$kind] $own/own.$kind}
        r config set tls-cert-file $own/own.crt tls-key-file $own/own.key
        foreach {option value} [list tls-cert-file $own/own.crt tls-key-file $own/own.key \
            tls-ca-cert-file [crt ca.crt] tls-ca-cert-dir "" tls-client-cert-file "" tls-client-key-file "" \
            tls-dh-params-file ""] {
            set serial [info_field tls tls_server_cert_serial]
            set other [expr {[file_bytes $own/own.crt] eq [file_bytes [crt server.crt]] ? "other" : "server"}]
            foreach kind {crt key} {file copy -force [crt $other.$kind] $own/own.$kind}
            assert_equal OK [r config set $option $value]
            assert_not_equal $serial [info_field tls tls_server_cert_serial] $option
            assert_equal {0 PONG} [tls_cli "" ping]
        }
        r config set tls-cert-file [crt server.crt] tls-key-file [crt server.key]
    }

    test "changed files are loaded again by themselves" {
        set own [file join [srv dir] own]
        file mkdir $own
        foreach kind {crt key} {file copy [crt server.$kind] $own/own.$kind}
        r config set tls-cert-file $own/own.crt tls-key-file $own/own.key tls-key-file-pass "" \
            tls-auto-reload-interval 1
        set serial [info_field tls tls_server_cert_serial]
        set from [log_size]
        # A certificate without its key: the old pair remains in use.
        file copy -force [crt other.crt] $own/new.crt
        file rename -force $own/new.crt $own/own.crt
        wait_for_log "Failed to load private key: " $from
        wait_for_log "Background TLS reload failed" $from
        assert_equal $serial [info_field tls tls_server_cert_serial]
        assert_equal {0 PONG} [tls_cli "" ping]
        file copy -force [crt other.key] $own/new.key
        file rename -force $own/new.key $own/own.key
        wait_for_log "TLS materials reloaded successfully" $from
        assert_not_equal $serial [info_field tls tls_server_cert_serial]
        assert_equal {0 PONG} [tls_cli "" ping]
        r config set tls-auto-reload-interval 0
    }

    test "a file is loaded again that changes in place and keeps its size and its time" {
        set own [file join [srv dir] own]
        foreach kind {crt key} {file copy -force [crt server.$kind] $own/own.$kind}
        set size [expr {max([file size [crt server.crt]], [file size [crt other.crt]])}]
        foreach name {server other} {
            set text($name) [format %-*s $size [file_bytes [crt $name.crt]]]
        }
        write_file $own/own.crt $text(server)
        r config set tls-cert-file $own/own.crt tls-key-file $own/own.key tls-auto-reload-interval 1
        set time [file mtime $own/own.crt]
        file mtime $own/own.crt [expr {$time - 100}]
        set from [log_size]
        wait_for_log "TLS materials reloaded successfully" $from
        set from [log_size]
        write_file $own/own.crt $text(other)
        file mtime $own/own.crt [expr {$time - 100}]
        wait_for_log "Background TLS reload failed" $from ;# the key is another one
        r config set tls-cert-file [crt server.crt] tls-key-file [crt server.key] tls-auto-reload-interval 0
    }

    test "a reload that ends after CONFIG SET does not undo it" -needs {ours 1} {
        set fifo [file join [srv dir] dh.fifo]
        set from [log_size]
        exec mkfifo $fifo
        file copy -force [crt dh.pem] [srv dir]/dh.pem
        r config set tls-auth-clients no tls-dh-params-file [srv dir]/dh.pem tls-auto-reload-interval 1
        file rename -force $fifo [srv dir]/dh.pem
        wait_for_log "TLS materials changed, reloading in background" $from
        r config set tls-auth-clients yes tls-dh-params-file "" tls-cert-file [crt chained.crt]
        set file [open [srv dir]/dh.pem w] ;# the background thread waits for a writer
        puts -nonewline $file [file_bytes [crt dh.pem]]
        close $file
        wait_for_condition 5000 {
            [log_has "TLS materials reloaded successfully" $from] ||
            [log_has "the reloaded materials are not used" $from]
        } "the reload does not end"
        assert_match {1 *certificate required*} [tls_cli "" ping]
        assert_equal {0 PONG} [tls_cli client ping]
        r config set tls-auth-clients no tls-cert-file [crt server.crt] tls-auto-reload-interval 0
    }

    test "CONFIG SET tls-port listens on another port, or on none" {
        set old [tls_port]
        set new [free_port]
        r config set tls-port $new
        assert_equal {0 PONG} [tls_cli "" ping]
        r config set tls-port 0
        assert {[catch {socket 127.0.0.1 $new}]}
        assert {![info_has server listener2]}
        r config set tls-port $old
        assert_equal {0 PONG} [tls_cli "" ping]
    }

    test "a server may have a TLS port alone" {
        set c [new_client]
        $c config set port 0
        assert_equal [tls_port] [dict get [info_dict [$c info server]] tcp_port]
        assert_equal {0 PONG} [tls_cli "" ping]
        $c config set port [srv port]
    }
}

start_tls_server {tls-auth-clients no tls-port 0} {
    test "CONFIG SET tls-port to a port in use is refused each time by a server without TLS" {
        set blocker [socket -server {} -myaddr 127.0.0.1 0]
        set taken [lindex [fconfigure $blocker -sockname] 2]
        at_test_end [list close $blocker]
        foreach time {first second} {
            assert_error "ERR CONFIG SET failed (possibly related to argument 'tls-port') - Unable to listen on this\
                port. Check server logs." {
                r config set tls-port $taken
            }
        }
        r config set tls-port [free_port]
        assert_equal {0 PONG} [tls_cli "" ping]
    }
}

start_tls_server {requirepass secret} {
    r auth secret
    test "tls-auth-clients: yes, no and optional" {
        assert_match {1 *} [tls_cli "" ping]
        assert_equal {0 PONG} [tls_cli client --no-auth-warning -a secret ping]
        assert_match {1 *} [tls_cli foreign --no-auth-warning -a secret ping]
        r config set tls-auth-clients optional
        assert_equal {0 PONG} [tls_cli "" --no-auth-warning -a secret ping]
        assert_match {1 *} [tls_cli foreign --no-auth-warning -a secret ping]
        r config set tls-auth-clients no
        assert_equal {0 PONG} [tls_cli foreign --no-auth-warning -a secret ping]
        r config set tls-auth-clients yes
    }

    test "a certificate names its client's user" {
        assert_match {* {NOAUTH *}} [tls_cli client ping]
        r config set tls-auth-clients-user CN
        assert_equal {0 PONG} [tls_cli client ping]
        assert_equal 0 [info_field stats acl_access_denied_tls_cert]
        assert_match {* {NOAUTH *}} [tls_cli other ping]
        assert_equal 1 [info_field stats acl_access_denied_tls_cert]
        assert_equal {0 PONG} [tls_cli other --no-auth-warning -a secret ping]
        r config set tls-auth-clients-user URI
        assert_match {* {NOAUTH *}} [tls_cli client ping]
        assert_equal 3 [info_field stats acl_access_denied_tls_cert]
        # A certificate without URIs claims to be nobody.
        assert_match {* {NOAUTH *}} [tls_cli other ping]
        assert_equal 3 [info_field stats acl_access_denied_tls_cert]
        assert_error_like "*argument(s) must be one of the following: CN, URI, off" \
            {r config set tls-auth-clients-user name}
        r config resetstat
        assert_equal 3 [info_field stats acl_access_denied_tls_cert]
        # The last name of the certificate is logged.
        foreach entry [lrange [r acl log] 0 1] name {urn:default nobody} {
            assert_equal [list tls-cert "" $name] [lmap field {reason object username} {dict get $entry $field}]
        }
        r config set tls-auth-clients-user CN
        r acl setuser nobody on +ping
        assert_equal {0 PONG} [tls_cli other ping]
        assert_match {* {NOPERM User nobody has no permissions to run the 'get' command*}} [tls_cli other get k]
        r acl setuser nobody off
        assert_match {* {NOAUTH *}} [tls_cli other ping]
        r config set tls-auth-clients-user off
        assert_match {* {NOAUTH *}} [tls_cli client ping]
    }
}

start_tls_server {tls-auth-clients no io-threads 3 tls-auth-clients-user CN requirepass secret} {
    r auth secret
    test "I/O threads make handshakes and know users" {
        r config set tls-auth-clients optional
        assert_equal {0 PONG} [tls_cli client ping]
        assert_match {* {NOAUTH *}} [tls_cli "" ping]
        assert {[plain_peer_closed [tls_port] "PING\r\n"]}
        set got [run -timeout 60 [tool valkey-benchmark] -p [tls_port] --tls --cacert [crt ca.crt] -a secret \
            -n [scaled 20000 2000] -c 20 -P 8 -d 3000 \
            -q -t set,get]
        assert_equal 0 [dict get $got code] $got
        # Contexts are replaced while threads use them.
        set load [spawn [tool valkey-benchmark] -p [tls_port] --tls --cacert [crt ca.crt] -a secret \
            -n [scaled 300 100] -c 10 -k 0 -q -t ping_mbulk]
        for {set i 0} {$i < 20} {incr i} {r config set tls-session-cache-size [expr {100 + $i}]}
        assert_equal 0 [dict get [spawn_wait $load 30000] code]
    }
}

# The event loop of the server that watches the client's socket: the descriptor of its epoll instance, or none.
proc loop_of_client {pattern} {
    if {![regexp { fd=(\d+) } [lsearch -inline -glob [split [r client list] \n] $pattern] - fd]} {return none}
    foreach file [glob -nocomplain /proc/[srv pid]/fdinfo/*] {
        if {![catch {file_bytes $file} text] && [regexp -line "^tfd: *$fd " $text]} {return [file tail $file]}
    }
    return none
}
# Forwards bytes that have arrived on one of the channels to the other.
proc relay_bytes {a b} {
    foreach {from to} [list $a $b $b $a] {puts -nonewline $to [read $from]}
}

start_tls_server {tls-auth-clients no tls-handshake-timeout-ms 60000 io-threads 1} {
    test "a connection whose handshake ends after a change of io-threads also moves" -needs {ours 1} {
        set own "id=[r client id] *"
        set main [loop_of_client $own]
        foreach {before after} {2 1 1 2} {
            r config set io-threads $before
            wait_for_condition 20000 {[set loop [loop_of_client $own]] ne "none" && ($loop eq $main) == ($before == 1)}
            set ::relay_peer ""
            set listener [socket -server {apply {{chan args} {set ::relay_peer $chan}}} -myaddr 127.0.0.1 0]
            set cli [spawn [tool valkey-cli] -p [lindex [fconfigure $listener -sockname] 2] --tls\
                --cacert [crt ca.crt] subscribe news]
            wait_for_condition 20000 {[update; set ::relay_peer] ne ""}
            set tls [socket 127.0.0.1 [tls_port]]
            foreach chan [list $tls $::relay_peer] {
                fconfigure $chan -translation binary -blocking 0 -buffering none
            }
            wait_for_condition 20000 {[info_field tls tls_handshakes_pending] == 1}
            r config set io-threads $after
            wait_for_condition 20000 {[set loop [loop_of_client $own]] ne "none" && ($loop eq $main) == ($after == 1)}
            wait_for_condition 20000 {
                [relay_bytes $tls $::relay_peer; r publish news hello] == 1
                && [loop_of_client "* cmd=subscribe *"] eq [loop_of_client $own]
            }
            kill_process KILL [spawn_pid $cli]
            catch {spawn_wait $cli}
            foreach chan [list $tls $::relay_peer $listener] {close $chan}
            wait_for_condition 20000 {[info_field clients connected_clients] == 1}
        }
    }
}

test "a replica follows its primary by TLS" {
    start_tls_server {tls-replication yes} {
        r set before [string repeat x 100000]
        set primary [tls_port]
        start_tls_server {tls-replication yes} {
            r replicaof 127.0.0.1 $primary
            wait_for_condition 15000 {[info_field replication master_link_status] eq "up"}
            r -1 set after y
            wait_for_condition 5000 {[r get after] eq "y"}
            assert_equal 100000 [r strlen before]
            wait_for_condition 5000 {
                [string match "*slave0:ip=127.0.0.1,port=[tls_port],state=online*" [r -1 info replication]]
            }
            set replica [lsearch -inline -glob [split [r -1 client list] \n] "* flags=S *"]
            assert_match "* transport=tls *" $replica
        }
    }
}

start_tls_server {tls-replication yes} {
    set primary [tls_port]
    start_tls_server {tls-replication yes tls-port 0} {
        test "a replica without a TLS port names its TCP port to the primary" {
            r replicaof 127.0.0.1 $primary
            wait_for_condition 15000 {[info_field replication master_link_status] eq "up"}
            # The replica's link is up before the primary has its first acknowledgement.
            wait_for_condition 5000 {
                [string match "*slave0:ip=127.0.0.1,port=[srv port],state=online*" [r -1 info replication]]
            }
        }
    }
}

# With io-threads 3 the RDB channel may belong to another thread.
foreach threads {1 3} {
    test "the copy of an RDB channel is sent by TLS, io-threads $threads" -needs {ours 1} {
        set dual {tls-replication yes dual-channel-replication-enabled yes repl-diskless-sync-delay 0}
        start_tls_server [dict merge $dual [list enable-debug-command yes io-threads $threads]] {
            set before [info_field tls tls_memory]
            r debug populate 20000 key 1000
            set digest [r debug digest]
            set primary [tls_port]
            start_tls_server [dict merge $dual {repl-diskless-load swapdb enable-debug-command yes}] {
                set mark [log_size -1]
                r replicaof 127.0.0.1 $primary
                wait_for_condition 15000 {[info_field replication master_link_status] eq "up"}
                assert_equal $digest [r debug digest]
                wait_for_log "to direct socket to replica, without fork" $mark 5000 -1
                assert {[log_has "checksum disabled: skipped checksum for this transfer"]}
                r -1 set after y
                wait_for_condition 5000 {[r get after] eq "y"}
                assert {[dict get [info_dict [r -1 info tls]] tls_memory] > $before}
            }
        }
    }
}

test "a copy by TLS has a checksum if the replica does not load it as it comes" {
    start_tls_server {tls-replication yes repl-diskless-sync-delay 0} {
        set primary [tls_port]
        foreach {load skips} {disabled 0 swapdb 1} {
            start_tls_server [list tls-replication yes repl-diskless-load $load] {
                r replicaof 127.0.0.1 $primary
                wait_for_condition 15000 {[info_field replication master_link_status] eq "up"}
                assert_equal $skips [log_has "checksum disabled: skipped checksum for this transfer"]
                assert_equal $skips [log_has "while skipping RDB checksum for this transfer" 0 -1]
            }
        }
    }
}

start_tls_server {tls-cluster yes} {
    set target [tls_port]
    start_tls_server {tls-cluster yes} {
        test "MIGRATE speaks TLS with tls-cluster" {
            proc at_target {args} {
                set got [run [tool valkey-cli] -h 127.0.0.1 -p $::migrate_target --tls --cacert [crt ca.crt] \
                    --cert [crt client.crt] --key [crt client.key] {*}$args]
                string trim [dict get $got out][dict get $got err]
            }
            set ::migrate_target $target
            r set k [set value [numbered 300000]]
            assert_typed +OK migrate 127.0.0.1 $target k 0 5000
            assert_equal 0 [r exists k]
            assert_equal 300000 [at_target strlen k]
            r set k again
            assert_typed "-ERR Target instance replied with error: BUSYKEY Target key name already exists." \
                migrate 127.0.0.1 $target k 0 5000
            r config set tls-cluster no
            assert_typed "-IOERR error or timeout reading to target instance" migrate 127.0.0.1 $target k 0 5000
            assert_equal again [r get k]
        }
    }
}
