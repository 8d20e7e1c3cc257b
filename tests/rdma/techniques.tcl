# Techniques of the transport left out one by one (DEBUG RDMA TECHNIQUE, in builds with ABLATION=yes): slower perhaps,
# but the same stream. Other builds have no such switches. seconds: 8

set ablation 0
start_server {} {
    set ablation [expr {[lsearch -glob [r debug help] "RDMA TECHNIQUE*"] >= 0}]
    if {!$ablation} {
        test "a build without ABLATION=yes has no switches for techniques" {
            replies {{debug rdma technique inline no} \
                "-ERR unknown subcommand or wrong number of arguments for 'rdma'. Try DEBUG HELP."}
        }
    }
}
if {!$ablation} return

# How many work requests of the server were of a kind until now, as far as INFO rdma's share tells.
proc requests_of {kind} {
    set info [info_dict [r info rdma]]
    expr {round([dict get $info rdma_work_requests] * [dict get $info rdma_${kind}_share])}
}

foreach technique {inline chaining signalling huge-pages polled} {
    start_server {} {
        test "without $technique everything arrives whole and in order" {
            assert_typed +OK debug rdma technique $technique no
            set c [new_client]
            $c ping
            foreach size {1 60 219 221 4000 16384 65537 300000 2000000} {
                set value [numbered $size $size]
                $c set k$size $value
                assert_equal $value [$c get k$size]
            }
            # A pipeline that is larger than the buffers, replies of every size between one another.
            set out ""
            set want {}
            for {set i 0} {$i < [scaled 3000 1200]} {incr i} {
                set size [lindex {1 60 219 221 4000} [expr {$i % 5}]]
                append out [resp_command get k$size] [resp_command echo $i]
                lappend want [numbered $size $size] $i
            }
            $c -write $out
            foreach {value i} $want {
                assert_equal $value [$c -read]
                assert_equal $i [$c -read]
            }
            assert_typed +OK debug rdma technique $technique yes
        }
    }
}

start_server {} {
    foreach {technique kind} {inline inline signalling signalled} {
        test "$technique is left out of connections made afterwards, and used by those made before" {
            set before [new_client]
            $before ping
            r debug rdma technique $technique no
            set after [new_client]
            $after ping
            r debug rdma technique $technique yes
            foreach client {before after} {
                set count [requests_of $kind]
                for {set i 0} {$i < 1000} {incr i} {[set $client] ping}
                set $client-count [expr {[requests_of $kind] - $count}]
            }
            if {$kind eq "inline"} {
                assert_morethan ${before-count} 900
                assert_lessthan ${after-count} 100
            } else {
                assert_lessthan ${before-count} 200
                assert_morethan ${after-count} 900
            }
        }
    }

    test "DEBUG RDMA TECHNIQUE refuses what it does not know" {
        set error "-ERR techniques are inline, chaining, signalling, huge-pages and polled; each is yes or no"
        replies [list {debug rdma technique magic no} $error {debug rdma technique inline maybe} $error \
            {debug rdma technique inline} \
            "-ERR unknown subcommand or wrong number of arguments for 'rdma'. Try DEBUG HELP."]
    }
}
