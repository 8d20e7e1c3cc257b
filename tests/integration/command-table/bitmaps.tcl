# Bitmaps. See tests/harness/rows.tcl.
rows bitmap {
    bitcount {
        given {{set k abc}} call {bitcount k} gives :10
        missing :0
    }
    bitfield {
        given {{set k abc}} call {bitfield k set u8 0 65 get u8 8} gives {* :97 :98}
        missing {* :0 :0} events {{$ setbit k}}
    }
    {bitfield, get only} {
        given {{set k abc}} call {bitfield k get u8 8} gives {* :98}
        missing {* :0} repeats {}
    }
    bitfield_ro {
        given {{set k abc}} call {bitfield_ro k get u8 0} gives {* :97}
        missing {* :0}
    }
    bitop {
        given {{set k abc} {set l abd}} call {bitop and d k l} gives :3
        missing :0 takes {d any} events {{n new d} {$ set d}}
    }
    {bitop, nothing comes of it} {
        given {{set d x}} call {bitop and d k l} gives :0
        missing :0 takes {d any} events {{m keymiss k} {m keymiss l} {g del d}}
    }
    bitpos {
        given {{set k abc}} call {bitpos k 1} gives :1
        missing :-1
    }
    getbit {
        given {{set k abc}} call {getbit k 1} gives :1
        missing :0
    }
    setbit {
        given {{set k abc}} call {setbit k 7 0} gives :1
        missing :0 events {{$ setbit k}}
    }
    {setbit, a new key} {
        call {setbit k 7 1} gives :0
        events {{n new k} {$ setbit k}}
    }
}
