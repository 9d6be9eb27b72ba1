//! PIE, DOCSIS-PIE and DualPI2 against their models: the probability at every update, the fate of
//! every packet.

use crate::link::{Fate, Scene, run};
use crate::ours::Ours;
use crate::{Tally, docsis, dualpi2, pie, queues, tally, traces};

/// Returns PIE with `settings`, plain or in five flow queues.
fn pie_spec(variant: &str, is_fair: bool, s: &pie::Settings) -> String {
    let flag = |is_on: bool, word: &str| format!(" {}{word}", if is_on { "" } else { "no" });
    let mut spec = format!("pie variant {variant} limit {}", s.limit);
    for (is_on, word) in [
        (s.ecn, "ecn"),
        (s.capdrop, "capdrop"),
        (s.derand, "derand"),
        (s.onoff, "onoff"),
        (s.bytemode, "bytemode"),
    ] {
        spec += &flag(is_on, word);
    }
    spec += if s.dre { " dre" } else { " ts" };
    if is_fair {
        format!("fq_{spec} flows 5")
    } else {
        spec
    }
}

fn pie_controller(variant: &str, is_flow: bool, s: pie::Settings) -> Box<dyn pie::Controller> {
    match variant {
        "rfc" => Box::new(pie::Rfc::new(s)),
        "linux" => Box::new(pie::Linux::new(s)),
        _ => Box::new(pie::Dummynet::new(s, is_flow)),
    }
}

/// Returns each switch of the variant alone, and some combinations.
fn pie_settings(variant: &str) -> Vec<pie::Settings> {
    let d = pie::Settings::DEFAULTS;
    let all = vec![
        d,
        pie::Settings { ecn: true, ..d },
        pie::Settings { dre: true, ..d },
        pie::Settings { limit: 61, ..d },
        pie::Settings {
            bytemode: true,
            ..d
        },
        pie::Settings {
            capdrop: false,
            ..d
        },
        pie::Settings { derand: false, ..d },
        pie::Settings {
            onoff: true,
            limit: 90,
            ..d
        },
        pie::Settings {
            onoff: true,
            dre: true,
            ecn: true,
            limit: 60,
            ..d
        },
    ];
    all.into_iter()
        .filter(|s| variant != "dummynet" || !s.bytemode)
        .filter(|s| variant != "linux" || (s.capdrop && s.derand && !s.onoff))
        .collect()
}

fn compare_pie(variant: &'static str) {
    let mut seen = Tally::default();
    for scene in traces::all() {
        // Only dummynet's clock of microseconds has 32 bits.
        if scene.name.contains("clock") && variant != "dummynet" {
            continue;
        }
        for s in pie_settings(variant) {
            let spec = pie_spec(variant, false, &s);
            let mut model = queues::Plain::new(pie_controller(variant, false, s), s.limit);
            let mut ours = Ours::new(&spec);
            let (expected, got) = (run(&scene, &mut model), run(&scene, &mut ours));
            let name = scene.name;
            // The first probability that differs is more telling than the first packet.
            same_updates(&ours.told, &model.told, &format!("`{spec}` on {name}"));
            same_fates(&scene, &spec, &got, &expected);
            let t = tally(&got);
            seen.marked += t.marked;
            seen.dropped += t.dropped;
            seen.refused += t.refused;
        }
    }
    assert!(
        seen.marked > 100 && seen.dropped > 5000 && seen.refused > 500,
        "{seen:?}"
    );
}

/// Checks that every update of the model is reported at its instant. After a thousand updates that
/// changed nothing, further updates without a change may be missing.
fn same_updates(ours: &[(u64, f64)], model: &[(u64, f64)], what: &str) {
    let mut ours = ours.iter().peekable();
    let (mut last, mut repetitions) = (f64::NAN, 0);
    for (due, expected) in model {
        let got = match ours.next_if(|(at, _)| at == due) {
            Some((_, got)) => *got,
            None => {
                assert!(repetitions >= 999, "{what}: no value is reported at {due}");
                last
            }
        };
        // The model of the RFC is in floating point, with its rounding.
        assert!(
            (got - expected).abs() <= 1e-12,
            "{what} at {due}: {got}, but the model says {expected}"
        );
        repetitions = if got == last { repetitions + 1 } else { 0 };
        last = got;
    }
    assert_eq!(ours.next(), None, "{what}");
}

fn same_fates(scene: &Scene, spec: &str, got: &[Fate], expected: &[Fate]) {
    for (i, (got, expected)) in got.iter().zip(expected).enumerate() {
        assert_eq!(got, expected, "`{spec}` on {}: packet {i}", scene.name);
    }
}

#[test]
fn pie_equals_rfc_8033_in_floating_point() {
    compare_pie("rfc");
}

#[test]
fn pie_equals_its_linux_model() {
    compare_pie("linux");
}

#[test]
fn pie_equals_its_dummynet_model() {
    compare_pie("dummynet");
}

/// RFC 8034 in floating point: its three states, and delays from time stamps and from the tokens of
/// a shaper that is as fast as the link, slower and faster.
#[test]
fn docsis_pie_equals_rfc_8034_in_floating_point() {
    let plain = docsis::Modem {
        limit: 1000,
        shaper: None,
        has_inactive: true,
    };
    let told = |msr, peak, burst| Some((msr, peak, burst));
    let modems = [
        plain,
        docsis::Modem { limit: 90, ..plain },
        docsis::Modem { limit: 40, ..plain },
        docsis::Modem {
            has_inactive: false,
            ..plain
        },
        docsis::Modem {
            has_inactive: false,
            shaper: told(1_000_000, 1_000_000, 0),
            ..plain
        },
        docsis::Modem {
            limit: 90,
            shaper: told(10_000_000, 20_000_000, 30_000),
            ..plain
        },
        docsis::Modem {
            limit: 200,
            shaper: told(4_000_000, 10_000_000, 500_000),
            ..plain
        },
    ];
    for modem in modems {
        let mut seen = Tally::default();
        for scene in traces::all().into_iter().chain(dualpi2::scenes()) {
            if scene.name.contains("clock") {
                continue;
            }
            let spec = modem.spec();
            let controller = Box::new(docsis::Docsis::new(modem));
            let mut model = queues::Plain::new(controller, modem.limit);
            let mut ours = Ours::new(&spec);
            let (expected, got) = (run(&scene, &mut model), run(&scene, &mut ours));
            let name = scene.name;
            same_updates(&ours.told, &model.told, &format!("`{spec}` on {name}"));
            same_fates(&scene, &spec, &got, &expected);
            let t = tally(&got);
            seen.dropped += t.dropped;
        }
        assert!(seen.dropped > 200, "{modem:?}: {seen:?}");
    }
}

/// RFC 9332 in floating point: classification, coupling, the ramp, the step, overload, both
/// schedulers and the common limit.
#[test]
fn dualpi2_equals_rfc_9332_in_floating_point() {
    let d = dualpi2::Settings::DEFAULTS;
    let settings = [
        d,
        dualpi2::Settings {
            is_tsfifo: true,
            ..d
        },
        dualpi2::Settings {
            min_th_us: 1000,
            range_us: 0,
            ..d
        },
        dualpi2::Settings {
            min_th_us: 5_000,
            range_us: 30_000,
            th_len: 4,
            ..d
        },
        dualpi2::Settings {
            k: 1.0,
            th_len: 0,
            ..d
        },
        dualpi2::Settings { k: 4.0, ..d },
        dualpi2::Settings {
            any_ect: true,
            limit: 30,
            ..d
        },
        dualpi2::Settings {
            limit_bytes: 20_000,
            ..d
        },
    ];
    for s in settings {
        let mut seen = Tally::default();
        let (mut most, spec) = (0.0f64, s.spec());
        for scene in dualpi2::scenes() {
            let mut model = dualpi2::DualPi2::new(s);
            let mut ours = Ours::new(&spec);
            let (expected, got) = (run(&scene, &mut model), run(&scene, &mut ours));
            let what = format!("`{spec}` on {}", scene.name);
            let mut told = ours.told.iter().peekable();
            let mut last = 0.0;
            for (due, expected) in &model.told {
                // Updates that change nothing are omitted while nothing is queued.
                if let Some((_, p)) = told.next_if(|(at, _)| at == due) {
                    last = *p;
                }
                let difference = (last - expected).abs();
                assert!(
                    difference <= 1e-12,
                    "{what} at {due}: {last}, not {expected}"
                );
                most = most.max(*expected);
            }
            assert_eq!(told.next(), None, "{what}");
            same_fates(&scene, &spec, &got, &expected);
            let t = tally(&got);
            seen.marked += t.marked;
            seen.dropped += t.dropped;
            seen.refused += t.refused;
        }
        let has_limit = s.limit < d.limit || s.limit_bytes < d.limit_bytes;
        assert!(seen.marked > 500, "{spec}: {seen:?}");
        assert!(
            has_limit || (seen.dropped > 1000 && most > 0.5),
            "{spec}: {seen:?}, {most}"
        );
        assert_eq!(has_limit, seen.refused > 0, "{spec}: {seen:?}");
    }
}

/// In flow queues the timers of idle queues are not called. The results must be the same as if they
/// were.
#[test]
fn flow_queued_pie_equals_models_that_are_updated_when_idle_too() {
    let mut evicted = 0;
    for variant in ["rfc", "linux", "dummynet"] {
        for scene in traces::all() {
            // One wrap of a clock takes 300 000 updates of every idle model.
            if scene.name.contains("clock") {
                continue;
            }
            for s in pie_settings(variant) {
                let spec = pie_spec(variant, true, &s);
                let controller = || pie_controller(variant, true, s);
                let mut model = queues::Fair::new(variant, 5, s.limit, controller);
                let got = run(&scene, &mut Ours::new(&spec));
                same_fates(&scene, &spec, &got, &run(&scene, &mut model));
                evicted += tally(&got).evicted;
            }
        }
    }
    assert!(evicted > 1000, "{evicted}");
}
