# A replica redirects clients that declared the capability to its primary.

start_server {overrides {repl-diskless-sync-delay 0}} {
    set host [srv host]
    set port [srv port]
    start_server {} {
        r set k local
        r replicaof $host $port
        wait_for_condition 15000 {[string match "*master_link_status:up*" [r info replication]]}
        r -1 set k v
        wait_for_condition 5000 {[r get k] eq "v"}

        test "commands on data are redirected, others are not" {
            set c [new_client]
            $c client capa redirect
            foreach command {{get k} {set k x} {dbsize} {keys *} {randomkey} {exists k} {flushall}\
                {eval_ro "return 1" 1 k}} {
                assert_equal "-REDIRECT $host:$port" [$c -typed {*}$command] $command
            }
            assert_equal PONG [$c ping]
            assert_equal 0 [$c publish channel x]
            assert_equal OK [$c watch k]
            assert_match "* capa=r *" [$c client list id [$c client id]]
            $c multi
            assert_equal "-REDIRECT $host:$port" [$c -typed get k]
            assert_match "-EXECABORT*" [$c -typed exec]
            $c -close
        }

        test "READONLY allows reads" {
            set c [new_client]
            $c client capa redirect
            assert_equal OK [$c readonly]
            assert_equal v [$c get k]
            assert_equal "-REDIRECT $host:$port" [$c -typed set k x]
            assert_equal OK [$c readwrite]
            assert_equal "-REDIRECT $host:$port" [$c -typed get k]
            $c -close
        }

        test "clients without the capability read, and get the usual error for writes" {
            assert_equal v [r get k]
            assert_match "-READONLY*" [r -typed set k x]
        }

        test "a primary redirects nobody" {
            set c [new_client]
            $c client capa redirect
            assert_equal "-REDIRECT $host:$port" [$c -typed get k]
            r replicaof no one
            assert_equal v [$c get k]
            assert_equal OK [$c set k x]
            $c -close
        }
    }
}
