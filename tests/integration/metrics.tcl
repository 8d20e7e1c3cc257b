# The metrics endpoint: the figures of INFO for Prometheus, over HTTP.
# seconds: 18

# Sends bytes to the metrics port and returns everything that comes until the server closes. With `half` the sending
# direction ends behind the bytes.
proc http_raw {port bytes {half 0}} {
    set s [socket 127.0.0.1 $port]
    fconfigure $s -translation binary -buffering none
    puts -nonewline $s $bytes
    if {$half} {close $s write}
    set got [read $s]
    close $s
    return $got
}
proc http_get {port {target /metrics} {method GET}} {
    return [http_raw $port "$method $target HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n"]
}
# {status headers body}
proc http_parts {reply} {
    set end [string first \r\n\r\n $reply]
    assert {$end > 0} [printable $reply 200]
    set lines [split [string map {\r\n \n} [string range $reply 0 $end-1]] \n]
    set headers {}
    foreach line [lrange $lines 1 end] {
        regexp {^([^:]+): (.*)$} $line -> name value
        dict set headers [string tolower $name] $value
    }
    return [list [lindex $lines 0] $headers [string range $reply $end+4 end]]
}
proc scrape {port} {
    lassign [http_parts [http_get $port]] status headers body
    assert_equal "HTTP/1.1 200 OK" $status
    return $body
}
# Checks the grammar of the text exposition format 0.0.4, and returns {name{labels} value} as a dictionary.
proc parse_metrics {text} {
    assert_equal \n [string index $text end] "the last line ends"
    set samples {}
    set closed {}
    set name ""
    set help ""
    foreach line [split [string range $text 0 end-1] \n] {
        if {[regexp {^# HELP ([a-zA-Z_:][a-zA-Z0-9_:]*) (.+)$} $line -> help]} continue
        if {[regexp {^# TYPE ([a-zA-Z_:][a-zA-Z0-9_:]*) (counter|gauge|summary)$} $line -> named type]} {
            assert_equal $help $named "HELP before TYPE"
            assert {$named ni $closed} "$named is in one group"
            lappend closed $named
            set name $named
            assert_equal [expr {$type eq "counter"}] [string match *_total $name] "counters end in _total: $name"
            assert_equal [expr {$type eq "summary"}] [string match *_percentiles_* $name] "a summary: $name"
            continue
        }
        assert {[regexp {^([a-zA-Z_:][a-zA-Z0-9_:]*)(\{.*\})? (-?[0-9.]+)$} $line -> sample labels value]} $line
        assert_equal $name $sample "a sample behind its TYPE"
        if {$labels ne ""} {
            set label {[a-zA-Z_][a-zA-Z0-9_]*="([^"\\\n]|\\["\\n])*"}
            assert {[regexp "^\\{${label}(,$label)*\\}\$" $labels]} $line
            set keys [lmap {all key} [regexp -all -inline {([a-zA-Z0-9_]+)="} $labels] {set key}]
            assert_equal [llength $keys] [llength [lsort -unique $keys]] $line
        }
        assert {![dict exists $samples $sample$labels]} "once: $line"
        dict set samples $sample$labels $value
    }
    return $samples
}

proc connects {port} {
    if {[catch {socket 127.0.0.1 $port} s]} {return 0}
    close $s
    return 1
}

start_server {tags {metrics}} {
    set needs {config metrics-port}
    set port [free_port]

    test "metrics are off by default; CONFIG SET switches them on and off" -needs $needs {
        assert_equal 0 [config_get metrics-port]
        assert_equal "127.0.0.1 -::1" [config_get metrics-bind]
        assert {![connects $::port]}
        r config set metrics-port $::port
        assert_match "HTTP/1.1 200 OK\r\n*" [http_get $::port]
        r config set metrics-port 0
        assert {![connects $::port]}
        r config set metrics-port $::port
    }

    test "a port that is in use is refused, and the old one stays" -needs $needs {
        set taken [socket -server {} -myaddr 127.0.0.1 0]
        at_test_end [list close $taken]
        assert_error "ERR CONFIG SET failed (possibly related to argument 'metrics-port') - Failed to listen for\
            metrics. Check server logs." {r config set metrics-port [lindex [fconfigure $taken -sockname] 2]}
        assert_equal $::port [config_get metrics-port]
        assert_match "HTTP/1.1 200 OK\r\n*" [http_get $::port]
    }

    test "the page keeps to the text format of Prometheus" -needs $needs {
        catch {r nosuchcommand}
        catch {r eval {return redis.error_reply('QUO"TE\\ back slash')} 0}
        r set key value
        lassign [http_parts [http_get $::port]] status headers body
        assert_equal "text/plain; version=0.0.4; charset=utf-8" [dict get $headers content-type]
        assert_equal [string length $body] [dict get $headers content-length]
        assert_equal close [dict get $headers connection]
        assert_morethan [dict size [parse_metrics $body]] 200
    }

    test "every number in INFO is on the page" -needs $needs {
        r set key value ex 1000
        set samples [parse_metrics [scrape $::port]]
        foreach line [split [string map {\r\n \n} [r info everything]] \n] {
            if {![regexp {^([a-z]\w*):(-?\d+(\.\d+)?)%?$} $line -> name] || [regexp {_sha1$|replid} $name]} continue
            set found [expr {[regexp {^rdma_(errors|refused)_(\w+)$} $name -> family kind] &&
                [llength [dict keys $samples "valkey_rdma_${family}_total{*=\"$kind\"}"]]}]
            set forms [list $name ${name}_total [regsub {^total_} $name {}]_total [regsub {_(total|count)$} $name {}]]
            foreach form [lsort -unique $forms] {
                incr found [dict exists $samples valkey_$form]
            }
            assert_equal 1 $found $line
        }
        assert_equal [r dbsize] [dict get $samples {valkey_db_keys{db="0"}}]
        assert_equal 1 [dict get $samples {valkey_db_expires{db="0"}}]
        assert_equal 1 [dict get $samples {valkey_role_info{value="master"}}]
        assert_equal 1 [dict get $samples valkey_rdb_last_bgsave_status]
        assert_range [dict get $samples valkey_used_memory_dataset_perc] 0 100
    }

    # Exit status 3: the page is valid, but names break conventions. The names are those of INFO, with their units.
    test "promtool accepts the page" -needs [concat $needs {true {[auto_execok promtool] ne ""}}] {
        r set key value
        set got [run -stdin [scrape $::port] promtool check metrics]
        assert {[dict get $got code] in {0 3}} [dict get $got err]
        foreach line [split [string trim [dict get $got err]] \n] {
            assert_regexp {use base unit|abbreviated units} $line
        }
    }

    test "figures of commands, errors and latencies have labels" -needs $needs {
        r config resetstat
        r set key value
        r set key value
        catch {r nosuchcommand}
        r client list
        set samples [parse_metrics [scrape $::port]]
        assert_equal 2 [dict get $samples {valkey_cmdstat_calls_total{cmd="set"}}]
        assert_equal 1 [dict get $samples {valkey_cmdstat_calls_total{cmd="client|list"}}]
        assert_equal 0 [dict get $samples {valkey_cmdstat_failed_calls_total{cmd="set"}}]
        assert_equal 1 [dict get $samples {valkey_errorstat_count_total{error="ERR"}}]
        assert {[dict get $samples {valkey_latency_percentiles_usec{cmd="set",quantile="0.999"}}] > 0}
    }

    test "replicas have labels" -needs $needs {
        start_server {} {
            r replicaof [srv -1 host] [srv -1 port]
            wait_for_condition 20000 {[string match "*state=online*" [r -1 info replication]]}
            set samples [parse_metrics [scrape $::port]]
            assert_equal 1 [dict get $samples valkey_connected_slaves]
            assert_equal 1 [llength [dict keys $samples "valkey_slave_offset{slave=\"0\",*port=\"*\"*}"]]
        }
    }

    test "HEAD has the headers only; HTTP/1.0 and a query are served" -needs $needs {
        lassign [http_parts [http_get $::port /metrics HEAD]] status headers body
        assert_equal "HTTP/1.1 200 OK" $status
        assert_morethan [dict get $headers content-length] 1000
        assert_equal "" $body
        assert_match "HTTP/1.1 200 OK\r\n*" [http_raw $::port "GET /metrics HTTP/1.0\n\n"]
        assert_match "HTTP/1.1 200 OK\r\n*" [http_get $::port /metrics?name=x]
    }

    test "a peer that ends its sending direction gets the page" -needs $needs {
        assert_match "HTTP/1.1 200 OK\r\n*\n" [http_raw $::port "GET /metrics HTTP/1.1\r\n\r\n" 1]
    }

    test "other requests are refused, and the connection is closed" -needs $needs {
        foreach {request status} {
            "GET / HTTP/1.1\r\n\r\n"                         404
            "GET /metricsx HTTP/1.1\r\n\r\n"                 404
            "POST /metrics HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc" 405
            "GET /metrics HTTP/2.0\r\n\r\n"                  400
            "GET /metrics\r\n\r\n"                           400
            "GET  /metrics HTTP/1.1\r\n\r\n"                 400
            "GET /metrics HTTP/1.1 x\r\n\r\n"                400
            "GET /met\x00rics HTTP/1.1\r\n\r\n"              400
            "\r\n\r\n"                                       400
            "*1\r\nping\r\n\r\n"                             400
        } {
            assert_match "HTTP/1.1 $status *" [http_raw $::port [subst -nocommands $request]] $request
        }
        assert_equal "" [http_raw $::port "GET /metrics HT" 1]
    }

    test "a request of more than 4096 bytes is refused" -needs $needs {
        set start "GET /metrics HTTP/1.1\r\nX: "
        assert_match "HTTP/1.1 431 *" [http_raw $::port $start[string repeat x 5000]]
        assert_match "HTTP/1.1 200 *" [http_raw $::port $start[string repeat x 3000]\r\n\r\n]
    }

    test "random bytes do no harm" -needs $needs {
        for {set i 0} {$i < 50} {incr i} {catch {http_raw $::port [randstring 0 5000] 1}}
        assert_match "HTTP/1.1 200 OK\r\n*" [http_get $::port]
        assert_equal PONG [r ping]
    }

    test "at most 16 connections exist, and one that sends nothing is closed after ten seconds" -needs $needs \
            -timeout 90 {
        set open {}
        for {set i 0} {$i < 16} {incr i} {lappend open [socket 127.0.0.1 $::port]}
        # Those above are closed without a word.
        wait_for_condition 5000 {[catch {http_get $::port} got] || $got eq ""}
        assert_equal PONG [r ping]
        wait_for_condition 30000 {![catch {http_get $::port} got] && [string match "HTTP/1.1 200 *" $got]}
        foreach s $open {
            assert_equal "" [read $s]
            close $s
        }
    }

    test "a scrape is not a client" -needs $needs {
        set before [info_field stats total_connections_received]
        scrape $::port
        assert_equal $before [info_field stats total_connections_received]
        assert_equal 1 [regexp -all -line {^id=} [r client list type normal]]
    }

    test "metrics are served while a script is busy" -needs $needs {
        with_config {busy-reply-threshold 100} {
            set c [new_client]
            $c -send eval {while true do end} 0
            wait_for_condition 10000 {[catch {r ping} e] && [string match BUSY* $e]}
            assert_match "*\nvalkey_connected_clients *" [scrape $::port]
            r script kill
            catch {$c -read}
            $c -close
        }
    }

    test "metrics are served while the server loads" -needs $needs -timeout 90 {
        r debug populate 20000 k 10
        r save
        reconnect_of [srv id]
        proxy_stop [srv id]
        kill_process KILL $::server([srv id],pid)
        server_reap [srv id]
        set f [open $::server([srv id],conf) a]
        puts $f "metrics-port $::port\nkey-load-delay 2000\nloading-process-events-interval-bytes 1024"
        close $f
        server_launch [srv id]
        wait_for_condition 20000 {![catch {http_get $::port} got] && [string match "*\nvalkey_loading 1\n*" $got]}
        assert_match "*\nvalkey_loading_loaded_perc *" $got
    }
}

start_server {tags {metrics}} {
    set needs_socket {config metrics-port true {[auto_execok python3] ne ""}}
    proc scrape {path} {
        set script {
import socket, sys
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[1])
s.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
sys.stdout.write(s.makefile("rb").read().decode())
        }
        set got [run python3 -c $script $path]
        list [dict get $got out] [dict get $got err]
    }

    test "metrics over a Unix socket" -needs $needs_socket {
        assert_equal OK [r config set metrics-unixsocket [file join [srv dir] metrics.sock]]
        lassign [scrape [file join [srv dir] metrics.sock]] page error
        assert_match "HTTP/1.1 200 OK*valkey_used_memory *" $page $error
    }

    test "CONFIG SET moves the Unix socket of metrics" -needs $needs_socket {
        set second [file join [srv dir] second.sock]
        assert_equal OK [r config set metrics-unixsocket $second]
        assert_match "HTTP/1.1 200 OK*" [lindex [scrape $second] 0]
        assert_equal 0 [file exists [file join [srv dir] metrics.sock]]
        assert_error "ERR CONFIG SET failed (possibly related to argument 'metrics-unixsocket') - Failed to listen for\
            metrics. Check server logs." {r config set metrics-unixsocket /nonexistent/metrics.sock}
        assert_error "ERR CONFIG SET failed (possibly related to argument 'metrics-unixsocket') - The path must be\
            absolute." {r config set metrics-unixsocket dump.rdb}
        assert_match "HTTP/1.1 200 OK*" [lindex [scrape $second] 0]
        assert_equal OK [r config set metrics-unixsocket ""]
        assert_equal 0 [file exists $second]
    }
}
