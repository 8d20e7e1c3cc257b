# valkey-benchmark --report: the page, its data, and what a browser makes of it.

set bench [file join $::root src valkey-benchmark]
set browser {}
foreach name {chromium chromium-headless-shell chromium-browser google-chrome} {
    if {$browser eq {}} {set browser [auto_execok $name]}
}

proc browser_is_installed {} {expr {$::browser ne {}}}

proc bench {args} {
    set got [run -timeout 50 $::bench -h [srv host] -p [srv port] -q {*}$args]
    return [list [dict get $got code] [dict get $got out] [dict get $got err]]
}
proc bench_ok {args} {
    lassign [bench {*}$args] code out err
    assert_equal {0 {}} [list $code $err] $args
    return $out
}
# The blocks of data in a page, one for each run.
proc blocks {page} {
    return [regexp -all -inline -- {<script type="application/json" class="run">.*?</script>} $page]
}
# The numbers of a JSON list of lists, as a list of lists.
proc pairs {block name} {
    assert {[regexp "\"$name\":\\\[(\\\[.*?\\\])\\\]" $block -> list]} "no $name in $block"
    return [string map {\]\,\[ "\} \{" \[ "\{" \] "\}" , " "} $list]
}
proc field {block name} {
    assert {[regexp "\"$name\":(\"(?:\[^\"\\\\\]|\\\\.)*\"|\[-0-9.\]+)" $block -> value]} "no $name in $block"
    return [string trim $value \"]
}
proc requests_per_second {out title} {
    set found {}
    foreach {-> value} [regexp -all -inline "$title: (\\d+\\.\\d+) requests per second" $out] {lappend found $value}
    return $found
}

start_server {} {
    set page [file join $::unit_dir report.html]

    test "--report writes a page that needs nothing else" {
        bench_ok -n 2000 -c 5 -t set,get --report $page
        set text [file_bytes $page]
        assert_match "<!doctype html>*</html>\n" $text
        # No address of another file or machine but the name of the SVG elements.
        set links [regexp -all -inline {https?://[^"' ]*} $text]
        assert_equal {http://www.w3.org/2000/svg} [lsort -unique $links]
        assert {![regexp {<(link|img|iframe)|src=|@import|url\(} $text]}
        assert_equal {} [glob -nocomplain $page.*]
    }

    test "a run in the page tells what was measured, and with what" {
        bench_ok -n 2000 -c 5 -P 4 -d 100 --threads 2 -t set,get --report $page --report-label "first run"
        set found [blocks [file_bytes $page]]
        assert_equal 1 [llength $found]
        set block [lindex $found 0]
        foreach {name value} {label "first run" transport tcp clients 5 pipeline 4 size 100 threads 2} {
            assert_equal $value [field $block $name] $name
        }
        assert_equal [srv host]:[srv port] [field $block target]
        assert_match "valkey [info_field server valkey_version]" [field $block version]
        assert_match "*save * appendonly no" [field $block settings]
        assert_regexp {^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$} [field $block date]
        assert_match "valkey-benchmark -h * -n 2000 -c 5 -P 4 *--report-label 'first run'" [field $block command]
        assert {[field $block cpus] > 0 && [field $block memory] > 0}
        assert_equal {SET GET} [lmap {-> title} [regexp -all -inline {"title":"([A-Z]+)"} $block] {set title}]
    }

    test "the distribution and the samples of a test add up to its requests" {
        foreach args {{-n 3000 -c 7} {-n 1 -c 1} {-n 100 -c 100} {--duration 1 -c 3 -P 2}\
            {--duration 1 --warmup 1 -c 2}} {
            bench_ok -t set {*}$args --report $page
            set block [lindex [blocks [file_bytes $page]] 0]
            set requests [field $block requests]
            set sum 0
            set last -1
            foreach pair [pairs $block histogram] {
                assert {[lindex $pair 0] > $last} "$args: $block"
                set last [lindex $pair 0]
                incr sum [lindex $pair 1]
            }
            assert_equal $requests $sum $args
            # Percentiles: the fraction above falls, the latency does not.
            set fraction 2
            set ns 0
            foreach pair [pairs $block percentiles] {
                assert {[lindex $pair 0] < $fraction && [lindex $pair 1] >= $ns} "$args: $block"
                lassign $pair fraction ns
            }
            assert {$ns <= [field $block max] && [field $block min] <= [field $block mean]} $block
            set seconds -1
            set done 0
            foreach sample [pairs $block samples] {
                assert {[lindex $sample 0] > $seconds && [lindex $sample 1] >= $done} "$args: $block"
                lassign $sample seconds done
            }
            assert_equal $requests $done $args
        }
    }

    test "--report-add puts runs side by side, --report begins anew" {
        set first [bench_ok -n 1000 -t set --report $page --report-label one]
        set second [bench_ok -n 1000 -t set,get --report-add $page --report-label two]
        set found [blocks [file_bytes $page]]
        assert_equal {one two} [lmap block $found {field $block label}]
        assert_equal [list [lindex [blocks [file_bytes $page]] 0]] [lrange $found 0 0]
        bench_ok -n 1000 -t get --report $page
        assert_equal tcp [lmap block [blocks [file_bytes $page]] {field $block label}]
        set fresh [file join $::unit_dir fresh.html]
        bench_ok -n 1000 -t get --report-add $fresh
        assert_equal 1 [llength [blocks [file_bytes $fresh]]]
    }

    test "--report-baseline names the run that others are compared with" {
        bench_ok -n 1000 -t set --report $page --report-label one
        assert_not_match {*"baseline":*} [lindex [blocks [file_bytes $page]] 0]
        bench_ok -n 1000 -t set --report-add $page --report-label two --report-baseline one
        assert_equal one [field [lindex [blocks [file_bytes $page]] 1] baseline]
    }

    test "texts of the user stay texts" {
        bench_ok -n 10 -t set --report $page --report-label "x</script><b>\"'\\"
        set found [blocks [file_bytes $page]]
        assert_equal 1 [llength $found]
        assert_match {*"label":"x\\u003c/script>\\u003cb>\\u0022'\\u005c",*} [lindex $found 0]
        bench_ok -n 10 --report $page set "it's" "a<x>"
        assert_match {*set 'it'\\u005c''s' 'a\\u003cx>'"*} [lindex [blocks [file_bytes $page]] 0]
    }

    test "what is not a report is not touched by --report-add" {
        foreach text {"my notes" "<!doctype html><html></html>"} {
            write_file $page $text
            lassign [bench -n 10 -t set --report-add $page] code out err
            assert_equal [list 1 {} "Cannot add to $page: not a report of valkey-benchmark\n"] [list $code $out $err]
            assert_equal $text [file_bytes $page]
        }
        lassign [bench -n 10 -t set --report-add $::unit_dir] code out err
        assert_equal 1 $code
    }

    test "a page that cannot be written fails before the run" {
        r config resetstat
        lassign [bench -n 10 -t set --report $::unit_dir/nosuch/report.html] code out err
        assert_equal [list 1 {} "Cannot write $::unit_dir/nosuch/report.html: No such file or directory\n"] \
            [list $code $out $err]
        assert_equal 0 [regexp {cmdstat_set:} [r info commandstats]]
    }

    test "--report goes with a run that ends" {
        foreach args {-l -I {--report-label x} {--report-baseline x}} {
            set got [run $::bench -p [srv port] {*}[expr {[llength $args] == 1 ? [list --report $page $args] : $args}]]
            assert_equal 1 [dict get $got code] $args
            assert_match "--report*" [dict get $got err]
        }
    }

    # What the page looks like once its script has run.
    proc rendered {page} {
        set got [run -timeout 100 {*}$::browser --headless --no-sandbox --disable-gpu --disable-dev-shm-usage \
            --no-first-run \
            --user-data-dir=[file join $::unit_dir browser] --dump-dom file://$page]
        assert_equal 0 [dict get $got code] [dict get $got err]
        return [encoding convertfrom utf-8 [dict get $got out]]
    }

    test "a browser shows the figures and charts of all runs" -timeout 240 -needs {true {[browser_is_installed]}} {
        set two [bench_ok -n 20000 -c 5 -P 8 -t set,get --report $page --report-label Pipelined]
        set one [bench_ok -n 20000 -c 5 -t set,get --report-add $page --report-label "Plain <one>"]
        set dom [rendered $page]
        assert_match "*<title>valkey-benchmark: Pipelined, Plain &lt;one&gt;</title>*" $dom
        assert_equal 2 [regexp -all {<section class="card test">} $dom]
        # Three charts for each test, with a line for each run.
        assert_equal 6 [regexp -all {<figure>} $dom]
        assert_equal 12 [regexp -all {<path d="M[^"]*" fill="none" stroke="var\(--run[13]\)"} $dom]
        assert {![regexp {NaN|Infinity|undefined|\[object} [regsub {<script>.*?</script>} $dom {}]]} \
            "a figure is missing"
        set figures [lmap {-> figure} [regexp -all -inline {<td>([\d,.]+)</td>} $dom] {string map {, {}} $figure}]
        foreach title {SET GET} {
            foreach out [list $one $two] {
                set rate [lindex [requests_per_second $out $title] end]
                set near [lmap figure $figures {if {abs($figure - $rate) > 1} continue; set figure}]
                assert {[llength $near]} "$title: no $rate among $figures"
            }
        }
        # The slower run is the one that the other is compared with, although it came second.
        assert_match "*<b>Pipelined</b> has <b>*×</b> the throughput of Plain &lt;one&gt;,*" $dom
        assert_match "*Pipelined, Plain &lt;one&gt;: tests of less than a second say little.*" $dom
        foreach text {"Throughput over time" "Latency by percentile" "Latency histogram"\
            "5 connections, pipeline 8, values of 3 bytes"} {
            assert {[string first $text $dom] >= 0} "no $text"
        }
    }
}

start_server {overrides {requirepass sesame}} {
    test "a report has no passwords" {
        set page [file join $::unit_dir secret.html]
        bench_ok -a sesame -n 10 -t set --report $page
        bench_ok -u valkey://default:sesame@[srv host]:[srv port] -n 10 -t set --report-add $page
        set text [file_bytes $page]
        assert_equal -1 [string first sesame $text]
        assert_match "* -a \\*\\*\\* *" $text
        assert_match "*valkey://default:\\*\\*\\*@[srv host]:[srv port]*" $text
    }
}
