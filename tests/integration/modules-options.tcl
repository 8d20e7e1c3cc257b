# Modules: their options, and their sections of INFO. The modules are in tests/modules.

proc calls {} {return [r options.calls]}
proc refused_set {option value reason} {
    assert_error "ERR CONFIG SET failed (possibly related to argument '$option')$reason" \
        [list r config set $option $value]
}
set first_values "set:flag=1 set:number=7 set:memory=1024 set:large=-9223372036854775808 set:text=secret password\
    set:color=1 set:bits=3 set:fixed=0 set:hidden=0 set:protected=0 set:no-loading=0 set:sensitive=0"

start_server {overrides {enable-module-command yes} tags {modules}} {
    test "options get their defaults, in the order of registration" -needs {ours 1} {
        r module load [test_module options]
        assert_equal $first_values [calls]
        assert_equal {options.bits {one two} options.color red options.fixed no options.flag yes options.large\
            -9223372036854775808 options.memory 1024 options.no-loading no options.number 7 options.protected no\
            options.sensitive no options.text {secret password}} [r config get options.*]
        assert_equal {options.hidden no} [r config get options.hidden]
        r module unload options
        assert_equal {} [r config get options.*]
    }

    test "invalid registrations are refused, with an errno" -needs {ours 1} {
        r module load [test_module options] invalid
        assert_equal "twice:error=114 name:error=22 space:error=22 empty:error=22 dash:ok=0 bitflags:error=22\
            memory:error=22 unsigned:error=22 bit2:error=22 bit20:error=22 limits:ok=0 enum:ok=0" [r options.refusals]
        assert_equal {options.e7 unknown} [r config get options.e7]
        assert_equal "late:error=16 load:error=0" [r options.late]
        r module unload options
        foreach {variant reason} {
            unloaded "Module Configurations were not set, likely a missing LoadConfigs call. Unloading the module."
            bad-default "Issue attempting to set default value of configuration bad : 13 is not for bad"
        } {
            set from [log_size]
            assert_error "ERR Error loading the extension. Please check the server logs." \
                [list r module load [test_module options] $variant]
            wait_for_log $reason $from
            assert_equal {} [r config get options.*]
        }
    }

    test "CONFIG SET checks values, and asks the module" -needs {ours 1} {
        r module load [test_module options]
        calls
        foreach {option value reason} {
            flag maybe " - argument must be 'yes' or 'no'"
            number 3000 " - argument must be between -5 and 2000 inclusive"
            number x " - argument couldn't be parsed into an integer"
            memory x " - argument must be a memory value"
            memory 3gb " - argument must be between 0 and 3000000 inclusive"
            large 3 " - argument must be between 5 and 18446744073709551615 inclusive"
            color purple " - argument(s) must be one of the following: red, green, blue"
            bits three " - argument(s) must be one of the following: none, one, two, four"
            bits "" " - argument(s) must be one of the following: none, one, two, four"
            fixed yes " - can't set immutable config"
        } {
            refused_set options.$option $value $reason
            assert_equal "" [calls]
        }
        refused_set options.number 13 " - 13 is not for number"
        refused_set options.number 14 ""
        refused_set options.text refuse " - the text is refused"
        assert_equal "set:number=13 set:number=14 set:text=refuse" [calls]
        r config set options.flag no options.memory 2kb options.large -1 options.text "a b" options.color BLUE \
            options.bits "one four" options.hidden yes
        assert_equal "set:flag=0 set:memory=2048 set:large=-1 set:text=a b set:color=4 set:bits=5 set:hidden=1\
            apply:flag=0 apply:text=a b" [calls]
        r config set options.flag no OPTIONS.color blue
        assert_equal "" [calls] ;# nothing has changed
        assert_equal {options.bits {one four}} [r config get options.bits]
    }

    test "values are put back when a module refuses to apply them" -needs {ours 1} {
        assert_error "ERR CONFIG SET failed (possibly related to argument 'flag') - not both" \
            {r config set options.flag yes options.number 99}
        assert_equal "set:flag=1 set:number=99 apply:flag=1 set:number=7 set:flag=0 apply:flag=0" [calls]
        assert_error "ERR CONFIG SET failed (possibly related to argument 'text') - text is never applied" \
            {r config set options.number 98 options.text never}
        assert_error [string cat "ERR CONFIG SET failed (possibly related to argument 'maxmemory') - " \
            "argument must be a memory value"] {r config set options.number 97 maxmemory x}
        assert_equal {options.flag no options.number 7 options.text {a b}} \
            [r config get options.flag options.number options.text]
        r module unload options
    }

    test "MODULE LOADEX gives options their values, or the load fails" -needs {ours 1} {
        set module [test_module options]
        foreach {pairs reason} {
            {options.nosuch no} "Loadex configurations were not applied, likely due to invalid arguments."
            {other.flag no} "Loadex configurations were not applied, likely due to invalid arguments."
            {flag no} "Loadex configurations were not applied, likely due to invalid arguments."
            {options.number 3000} "Issue during loading of configuration options.number : argument must be between -5*"
            {options.number 13} "Issue during loading of configuration options.number : 13 is not for number"
        } {
            set from [log_size]
            assert_error "ERR Error loading the extension. Please check the server logs." \
                [list r module loadex $module config {*}$pairs]
            wait_for_log $reason $from
        }
        r module loadex $module config options.number 98 config OPTIONS.number 97 config options.bits "one four" \
            config options.text "x y" args invalid
        assert_equal {options.bits {one four} options.number 97 options.text {x y}} \
            [r config get options.bits options.number options.text]
        assert_equal invalid [dict get [lindex [r module list] 0] args]
        r module unload options
    }

    test "a module writes sections of INFO" -needs {ours 1} {
        r module load [test_module sections]
        set plain "# sections\r\nsections_signed:-2\r\nsections_unsigned:18446744073709551615\r\n"
        append plain "sections_double:0.25\r\n"
        set texts "# sections_texts\r\nsections_string:a:b\r\nsections_odd#name:a:b,c=d\r\n"
        append texts "sections_di_ct:one=1,two=2,=3\r\nsections_other:three=3\r\n"
        set open "# sections_Open\r\nsections_unfinished:one=1\r\n"
        assert_equal $plain\r\n$texts\r\n$open [r info sections]
        assert_equal $texts [r info SECTIONS_TEXTS]
        assert_equal $texts\r\n$open [r info sections_open sections_texts]
        assert_match "# CPU\r\n*\r\n\r\n$plain*" [r info cpu sections]
        assert_match "# Modules\r\n*module:name=sections,*\r\n\r\n$plain*$open" [r info modules]
        assert_match "*$texts*" [r info everything]
        assert_match "*$texts*" [r info all sections_texts]
        foreach names {{} default all nosuch sections_crash} {assert_not_match "*sections_*" [r info {*}$names]}
        assert {[r sections.refused] > 0}
        r module unload sections
        assert_equal "" [r info sections]
    }
}

start_server {overrides {enable-module-command yes} tags {modules}} {
    test "options of modules are in the rewritten file, and are read from it" -needs {ours 1} {
        r module loadex [test_module options] config options.number 5 config options.bits "two four"
        r config set options.text {with "quotes"} options.memory 2048
        r config rewrite
        set text [file_bytes [srv conf]]
        foreach line {{options.number 5} {options.bits two four} {options.text "with \"quotes\""}\
            {options.memory 2kb}} {
            assert {$line in [split $text \n]}
        }
        assert_not_match "*options.flag*" $text
        restart_server
        assert_equal {options.bits {two four} options.flag yes options.memory 2048 options.number 5 options.text\
            {with "quotes"}} [r config get options.bits options.flag options.memory options.number options.text]
        r module unload options
        r config rewrite
        assert_match "*\n# ??? options.number 5\n*" [file_bytes [srv conf]]
        restart_server
        assert_equal {} [r config get options.*]
    }
}
