use sluice_core::registry::Spec;
use sluice_core::*;
use sluice_sim::*;
use sluice_tcp::cc;
#[derive(Default)]
struct Obs { rtt: Vec<f64>, sojourn: Vec<f64>, drops: u64, srtt: Vec<f64>, cwnd: Vec<f64>, oh: u64 }
impl Observer for Obs {
    fn hears_packets(&self) -> bool { true }
    fn on_echo(&mut self, _: usize, e: &Echo) { self.rtt.push(e.round_trip.as_ms_f64()); }
    fn on_drop(&mut self, _: usize, _: Time, _: &Packet, _: usize, _: DropReason) { self.drops += 1; }
    fn on_event(&mut self, link: usize, now: Time, e: &Event<'_>) {
        if let (0, Event::Dequeue { packet }) = (link, e) { self.sojourn.push(packet.sojourn(now).as_ms_f64()); }
    }
    fn on_tcp(&mut self, f: usize, s: &TcpSample) { if f == 0 { self.srtt.push(s.sender.srtt.map_or(0.0, |x| x.as_ms_f64())); self.cwnd.push(s.sender.window.cwnd as f64 / 1448.0); } }
}
fn pct(v: &mut Vec<f64>, p: f64) -> f64 { v.sort_by(|a, b| a.total_cmp(b)); if v.is_empty() { return 0.0 } v[((v.len() - 1) as f64 * p) as usize] }
fn main() {
    let args: Vec<String> = std::env::args().collect();
    // rate_mbit rtt_us secs queue cc[,cc...] [ping]
    let rate: f64 = args[1].parse().unwrap();
    let rtt: u64 = args[2].parse().unwrap();
    let secs: u64 = args[3].parse().unwrap();
    let q = Spec::parse(&args[4]).unwrap();
    for seed in 1..=args.get(6).map_or(1, |x| x.parse().unwrap()) {
        let mut flows: Vec<Flow> = args[5].split(',').map(|n| {
            let mut it = n.split(':');
            let mut tcp = Tcp::bulk(cc::find(it.next().unwrap()).unwrap());
            for o in it { match o { "hs" => tcp.config.slow_start = sluice_tcp::SlowStart::Hystart, "hpp" => tcp.config.slow_start = sluice_tcp::SlowStart::HystartPlusPlus, "ecn" => tcp.config.ecn = sluice_tcp::EcnMode::Classic, "pace" => tcp.config.pacing = sluice_tcp::Pacing::On, "dup" => tcp.config.loss_detection = sluice_tcp::LossDetection::DupAck, _ => panic!() } }
            Flow::new(Traffic::Tcp(tcp.into()), dumbbell_route(Span::ZERO)) }).collect();
        let n = flows.len();
        flows.push(Flow::new(Traffic::Ping(Ping { interval: Span::from_ms(20), payload: 56, count: None }), dumbbell_route(Span::ZERO)));
        let config = Config { duration: Span::from_secs(secs), seed, links: dumbbell(Rate::from_bps((rate * 1e6) as u64), Span::from_us(rtt), &q), flows, sample_interval: Some(Span::from_ms(50)), frame_overhead: 14, ..Config::default() };
        let mut s = Simulation::new(&config).unwrap();
        let mut o = Obs::default();
        s.run(&mut o);
        let g: Vec<String> = (0..n).map(|f| format!("{:.3}", s.totals(f).bytes_received as f64 * 8e-6 / secs as f64)).collect();
        let r: Vec<String> = (0..n).map(|f| format!("{}", s.totals(f).retransmits)).collect();
        println!("goodput {} retx {} drops {} marks {} ping p50 {:.1} p95 {:.1} p99 {:.1} sojourn p50 {:.2} p95 {:.2} srtt p50 {:.1} cwnd p50 {:.1} max {:.1}", g.join(" "), r.join(" "), o.drops, s.totals(0).packets_marked, pct(&mut o.rtt, 0.5), pct(&mut o.rtt, 0.95), pct(&mut o.rtt, 0.99), pct(&mut o.sojourn, 0.5), pct(&mut o.sojourn, 0.95), pct(&mut o.srtt, 0.5), pct(&mut o.cwnd, 0.5), pct(&mut o.cwnd, 1.0));
    }
}
