use super::*;
use alloc::format;

const EXAMPLE: &str = "name x\nsamples 100\nloss-level 0.86\nprob delay\n\
    0 200\n0.5 200\n0.5 300\n0.8 1000\n0.9 1300\n1 1300\n";

#[test]
fn the_example_of_the_manual_is_sampled() {
    let profile = Profile::parse(EXAMPLE).unwrap();
    let samples = profile.samples_ms();
    assert_eq!((profile.name.as_str(), samples.len()), ("x", 100));
    assert_eq!(profile.loss_level(), 86);
    assert!(profile.warnings.is_empty());
    // Flat up to .5, a jump to 300 there; then 300 + 700 (y - .5) / .3: at .51 323.3, at .6 533.3;
    // 1000 + 300 (y - .8) / .1: at .85 1150; flat from .9.
    assert!(samples[..50].iter().all(|ms| *ms == 200));
    assert_eq!(
        [
            samples[50],
            samples[51],
            samples[60],
            samples[80],
            samples[85]
        ],
        [300, 323, 533, 1000, 1150]
    );
    assert!(samples[90..].iter().all(|ms| *ms == 1300));
}

#[test]
fn points_come_in_any_order_and_either_way_round() {
    let swapped = "NAME x\nSamples 100 # comment\nloss-level .86\n\ndelay prob\n\
        1300 1\n1300 0.9\n300 0.5\n200 .5\n1000 0.8\n200 0\n";
    assert_eq!(Profile::parse(swapped), Profile::parse(EXAMPLE));
}

#[test]
fn what_is_not_given_is_assumed_with_a_warning() {
    let profile = Profile::parse("prob delay\n0.25 10\n0.75 20").unwrap();
    assert_eq!(profile.samples_ms().len(), 100);
    assert_eq!(profile.loss_level(), 100);
    assert_eq!(profile.warnings.len(), 2);
    // Beyond the points the curve is constant.
    assert_eq!(
        (profile.samples_ms()[0], profile.samples_ms()[99]),
        (10, 20)
    );
    assert_eq!(profile.samples_ms()[50], 15);
}

#[test]
fn errors_are_those_of_dummynet_with_the_line() {
    let error = |text: &str| Profile::parse(text).unwrap_err().to_string();
    assert_eq!(error("samples 1 2"), "at line 1: too many arguments");
    assert_eq!(error("\nsamples"), "at line 2: missing arg for samples");
    assert_eq!(
        error("samples 5\nsamples 5"),
        "at line 2: duplicate ``samples'' line"
    );
    assert_eq!(error("samples 0"), "at line 1: invalid number of samples");
    assert_eq!(error("samples -3"), "at line 1: invalid number of samples");
    assert_eq!(
        error("samples 1025"),
        "at line 1: too many samples, maximum is 1024"
    );
    assert_eq!(error("name a\nname b"), "at line 2: duplicated token: name");
    assert_eq!(
        error("loss-level 1\nloss-level 1"),
        "at line 2: duplicated token: loss-level"
    );
    assert_eq!(
        error("prob delay\ndelay prob"),
        "at line 2: duplicated token: delay"
    );
    assert_eq!(
        error("loss-level 1.1"),
        "at line 1: loss-level greater than 1.0"
    );
    assert_eq!(error("prob delay\n0 x"), "at line 2: invalid point found");
    assert_eq!(
        error("prob delay\n1.5 7"),
        "at line 2: probability greater than 1.0"
    );
    assert_eq!(error("0 7"), "at line 1: unrecognised command '0'");
    assert_eq!(
        error("prob delay\n0 7\n"),
        "at line 2: too few samples, need at least 2"
    );
}

#[test]
fn bandwidths_follow_dummynets_grammar() {
    let bps = |text: &str| bandwidth(text).map(Rate::as_bps);
    assert_eq!(bps("10Mbit/s"), Some(10_000_000));
    assert_eq!(bps("30Byte/s"), Some(240));
    assert_eq!(bps("50KBytes"), Some(400_000));
    assert_eq!(bps("0x10"), Some(16));
    assert_eq!(bps("010"), Some(8));
    assert_eq!(bps("1.5Mbit/s"), Some(1));
    assert_eq!(bps("tun0"), Some(u64::MAX));
    assert_eq!(bps("0"), Some(u64::MAX));
    assert_eq!(bps("-1"), None);
    assert_eq!(bps(&format!("{}G", u64::MAX)), None);
}

#[test]
fn a_packet_occupies_the_link_longer_and_may_be_lost() {
    // All samples 10 ms: 1250 B at 1 Mbit/s take 10 ms, and 10 ms are 10 000 bit more.
    let text = "samples 4\nloss-level 0.5\nprob delay\n0 10\n1 10\n";
    let profile = Profile::parse(text).unwrap();
    let mut rng = Rng::from_seed(1);
    let (mut lost, n) = (0u32, 10_000);
    for _ in 0..n {
        let (span, is_lost) = profile.transmission(Rate::from_bps(1_000_000), 1250, &mut rng);
        assert_eq!(span, Span::from_ms(20));
        lost += u32::from(is_lost);
    }
    // Half of the samples are lost: sigma = sqrt(10 000 / 4) = 50; 5 sigma = 250.
    assert!(lost.abs_diff(n / 2) < 250, "{lost}");
    assert_eq!(
        profile.transmission(Rate::UNLIMITED, 1250, &mut rng),
        (Span::ZERO, false)
    );
}
