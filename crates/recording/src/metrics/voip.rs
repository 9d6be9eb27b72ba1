//! The quality of a voice call over the path, by the E-model of ITU-T G.107 (06/2015).
//!
//! All parameters but delay and loss keep the default values of its tables 2 and 3, so that the rating
//! without delay and loss is 93.2. The codec is G.711 without loss concealment, with random loss.

/// Returns the mean opinion score, 1 to 4.5, at a one-way delay in milliseconds and a share of lost
/// packets.
///
/// A playout buffer waits for late packets too. So the delay should be the mean plus twice the mean
/// difference of two consecutive delays, as in flent's `voip` test.
///
/// ```
/// use sluice_recording::metrics::mean_opinion_score;
/// // G.107 section 7.7 gives R = 93.2 for the default values, and Annex B 4.41 for that.
/// assert_eq!((mean_opinion_score(0.0, 0.0) * 100.0).round(), 441.0);
/// ```
pub fn mean_opinion_score(delay_ms: f64, loss: f64) -> f64 {
    opinion(rating(delay_ms.max(0.0), loss.clamp(0.0, 1.0)))
}

/// Returns the transmission rating factor R (7-1), without an advantage factor.
fn rating(delay_ms: f64, loss: f64) -> f64 {
    BASIC_RATIO - SIMULTANEOUS - delay_impairment(delay_ms) - loss_impairment(loss)
}

/// Returns Id (7-18): talker echo, listener echo, and delay itself. The echo path is as long as the
/// call.
fn delay_impairment(t: f64) -> f64 {
    // (7-22), (7-21), (7-20), (7-19): talker echo.
    let loudness = TALKER_ECHO_LOUDNESS - 40.0 * ((1.0 + t / 10.0) / (1.0 + t / 150.0)).log10()
        + 6.0 * (-0.3 * t * t).exp();
    let echo = 80.0 + 2.5 * (loudness - 14.0);
    let without_echo = -1.5 * (NOISE - RECEIVE_LOUDNESS);
    let talker = if t < 1.0 {
        0.0
    } else {
        let half = (without_echo - echo) / 2.0;
        (half + (half * half + 100.0).sqrt() - 1.0) * (1.0 - (-t).exp())
    };
    // (7-26), (7-25): listener echo over the round trip.
    let echo = 10.5 * (ECHO_PATH_LOSS + 7.0) * (2.0 * t + 1.0).powf(-0.25);
    let half = (BASIC_RATIO - echo) / 2.0;
    let listener = half + (half * half + 169.0).sqrt();
    // (7-28), (7-27): delay that disturbs taking turns.
    let delay = if t <= LEAST_NOTICED_MS {
        0.0
    } else {
        let x = (t / LEAST_NOTICED_MS).log2();
        let sixth = |y: f64| (1.0 + y.powi(6)).powf(1.0 / 6.0);
        25.0 * (sixth(x) - 3.0 * sixth(x / 3.0) + 2.0)
    };
    talker + listener + delay
}

/// Returns Ie,eff (7-29) with a burst ratio of 1.
fn loss_impairment(loss: f64) -> f64 {
    let percent = loss * 100.0;
    // G.113 Appendix I for G.711: Ie is 0.
    95.0 * percent / (percent + G711_ROBUSTNESS)
}

/// Converts a rating to an opinion score (B-4).
fn opinion(r: f64) -> f64 {
    match r {
        r if r < 0.0 => 1.0,
        r if r > 100.0 => 4.5,
        r => (1.0 + 0.035 * r + r * (r - 60.0) * (100.0 - r) * 7e-6).max(1.0),
    }
}

/// No (7-3) in dBm0p: the power sum of -70 (circuit), -75.744 (room at the sender), -83.358 (room at
/// the receiver) and -62 (noise floor), which follow from the default values by (7-4) to (7-7).
const NOISE: f64 = -61.179_214_386_241_69;
/// Ro (7-2) with a send loudness rating of 8 dB.
const BASIC_RATIO: f64 = 15.0 - 1.5 * (8.0 + NOISE);
/// Is (7-8) of the default values: 0.440 for loudness (7-9), 0.974 for quantizing (7-14), and almost
/// nothing for sidetone (7-11).
const SIMULTANEOUS: f64 = 1.413_568_081_343_861_6;
/// RLR in dB.
const RECEIVE_LOUDNESS: f64 = 2.0;
/// TELR in dB.
const TALKER_ECHO_LOUDNESS: f64 = 65.0;
/// WEPL in dB.
const ECHO_PATH_LOSS: f64 = 110.0;
/// mT in ms (table 1).
const LEAST_NOTICED_MS: f64 = 100.0;
/// Bpl of G.711 without loss concealment (G.113 Appendix I).
const G711_ROBUSTNESS: f64 = 4.3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_values_have_the_rating_of_the_recommendation() {
        // G.107 section 7.7: R = 93.2, to one decimal.
        assert_eq!((rating(0.0, 0.0) * 10.0).round(), 932.0);
    }

    #[test]
    fn the_constants_follow_from_the_default_values() {
        // (7-4) to (7-7) with Nc = -70, Ps = Pr = 35, SLR = 8, RLR = 2, Ds = Dr = 3, STMR = 15, Nfor = -64.
        let sender = 35.0 - 8.0 - 3.0 - 100.0 + 0.004 * f64::powi(35.0 - 10.0 - 3.0 - 14.0, 2);
        let room = 35.0 + 10.0 * (1.0 + 10_f64.powf((10.0 - 18.0) / 10.0)).log10();
        let receiver = 2.0 - 121.0 + room + 0.008 * (room - 35.0) * (room - 35.0);
        let floor = -64.0 + 2.0;
        let powers = [-70.0, sender, receiver, floor].map(|db| 10_f64.powf(db / 10.0));
        let noise = 10.0 * powers.iter().sum::<f64>().log10();
        assert!((noise - NOISE).abs() < 1e-9, "{noise}");
        // (7-9), (7-10): OLR = SLR + RLR = 10.
        let x = 10.0 + 0.2 * (64.0 + NOISE - 2.0);
        let loudness = 20.0 * ((1.0 + (x / 8.0).powi(8)).powf(0.125) - x / 8.0);
        // (7-14) to (7-17) with one quantizing unit: Q = 37.
        let g = 1.07 + 0.258 * 37.0 + 0.0602 * 37.0 * 37.0;
        let y = (BASIC_RATIO - 100.0) / 15.0 + 46.0 / 8.4 - g / 9.0;
        let z = 46.0 / 30.0 - g / 40.0;
        let quantizing = 15.0 * (1.0 + 10_f64.powf(y) + 10_f64.powf(z)).log10();
        // (7-11), (7-12) with T = 0.
        let sidetone = -10.0 * (10_f64.powf(-1.5) + 10_f64.powf(-6.5)).log10();
        let sidetone = 12.0 * (1.0 + ((sidetone - 13.0) / 6.0).powi(8)).powf(0.125)
            - 28.0 * (1.0 + ((sidetone + 1.0) / 19.4).powi(35)).powf(1.0 / 35.0)
            - 13.0 * (1.0 + ((sidetone - 3.0) / 33.0).powi(13)).powf(1.0 / 13.0)
            + 29.0;
        let sum = loudness + quantizing + sidetone;
        assert!((sum - SIMULTANEOUS).abs() < 1e-6, "{sum}");
    }

    #[test]
    fn scores_are_those_of_the_reference_tool() {
        // The scores of flent 2.3.0, which was checked with the calculator of the ITU.
        for (delay, loss, expected) in [
            (20.0, 0.0, 4.395_970),
            (150.0, 0.0, 4.327_546),
            (400.0, 0.0, 3.215_599),
            (50.0, 0.01, 3.771_171),
            (50.0, 0.05, 2.097_491),
            (50.0, 0.2, 1.093_699),
            (400.0, 0.2, 1.0),
        ] {
            let score = mean_opinion_score(delay, loss);
            assert!(
                (score - expected).abs() < 1e-5,
                "{delay} ms, {loss}: {score}"
            );
        }
    }
}
