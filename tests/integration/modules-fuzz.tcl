# A module that calls the interface at random, from every kind of context. The module is tests/modules/fuzz.c.
# MODULE_FUZZ_SECONDS: how long; MODULE_FUZZ_SEED: the seed.

set fuzz_seconds [expr {[info exists ::env(MODULE_FUZZ_SECONDS)] ? $::env(MODULE_FUZZ_SECONDS) : 3}]
set fuzz_seed [expr {[info exists ::env(MODULE_FUZZ_SEED)] ? $::env(MODULE_FUZZ_SEED) : 1}]
set fuzz [file join $::root build modules fuzz.so]

start_server [list overrides [list loadmodule $fuzz save "" enable-debug-command yes notify-keyspace-events KEA] \
    tags {modules}] {
    test "random calls of a module's functions do no harm" -needs {ours 1} {
        start_server [list overrides [list loadmodule $fuzz save ""]] {
            r replicaof [srv -1 host] [srv -1 port]
            r -1 acl setuser fuzzed on nopass ~* +@all
            r -1 fuzz.start $fuzz_seed
            set end [expr {[clock milliseconds] + 1000 * $fuzz_seconds}]
            set waiting {}
            while {[clock milliseconds] < $end} {
                for {set i 0} {$i < 20} {incr i} {
                    catch {r -1 fuzz.run 20}
                    catch {r -1 fuzz.read 20}
                }
                set c [new_client -level -1]
                $c -send fuzz.wait
                lappend waiting $c
                if {[llength $waiting] > 12} {
                    [lindex $waiting 0] -close
                    set waiting [lrange $waiting 1 end]
                }
                catch {r -1 eval {return server.call('fuzz.run', '5')} 0}
                catch {r -1 multi; r -1 fuzz.run 5; r -1 fuzz.wait; r -1 exec}
                catch {r -1 discard}
                r -1 info everything
                if {[r -1 dbsize] > 1000} {r -1 flushall}
            }
            foreach c $waiting {$c -close}
            assert {[r -1 fuzz.stop] > 100 * $fuzz_seconds}
            assert_equal PONG [r -1 ping]
            assert_equal PONG [r ping]
        }
    }
}
