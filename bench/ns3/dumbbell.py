"""Run one dumbbell in ns-3, CUBIC flows over FQ-CoDel; print the time that Simulator.Run() took.

`direct` joins h2 and h3 by one link with FQ-CoDel in front of each direction: one queue and one
transmission for each packet. That is the least that ns-3 can do, and as much as Sluice's simulator
does. `router` is a real dumbbell, with a router and a fast access link at either side of the
bottleneck, as in ns-3's own examples. No Python runs during the simulation. Segments, buffers,
delayed ACKs and SACK are those of Sluice's default.

Usage: dumbbell.py direct|router FLOWS MBIT_PER_S SECONDS [FOLDER]. With a folder, the flow monitor
observes every node, and every packet at the bottleneck is traced, as text. `all_cpu_s` is the time
from the first node on until the last file is written.
"""

import json
import resource
import sys
import time

from ns import ns

RTT_MS = 20


def main() -> None:
    """Build and run the dumbbell, and print one line of JSON."""
    shape = sys.argv[1]
    flows, mbps, seconds = (int(word) for word in sys.argv[2:5])
    folder = sys.argv[5] if len(sys.argv) > 5 else None
    begin = time.process_time()
    ns.Config.SetDefault("ns3::TcpL4Protocol::SocketType", ns.StringValue("ns3::TcpCubic"))
    ns.Config.SetDefault("ns3::TcpSocket::SegmentSize", ns.UintegerValue(1448))
    ns.Config.SetDefault("ns3::TcpSocket::InitialCwnd", ns.UintegerValue(10))
    ns.Config.SetDefault("ns3::TcpSocket::SndBufSize", ns.UintegerValue(6 << 20))
    ns.Config.SetDefault("ns3::TcpSocket::RcvBufSize", ns.UintegerValue(6 << 20))
    ns.Config.SetDefault("ns3::TcpSocketBase::MinRto", ns.TimeValue(ns.MilliSeconds(200)))

    nodes = ns.NodeContainer()
    nodes.Create(2 if shape == "direct" else 4)
    stack = ns.InternetStackHelper()
    stack.Install(nodes)
    addresses = ns.Ipv4AddressHelper()
    addresses.SetBase(ns.Ipv4Address("10.0.0.0"), ns.Ipv4Mask("255.255.255.0"))
    last = nodes.GetN() - 1
    for left in range(last):
        is_bottleneck = shape == "direct" or left == 1
        link = ns.PointToPointHelper()
        rate = mbps if is_bottleneck else 10 * mbps
        link.SetDeviceAttribute("DataRate", ns.StringValue(f"{rate}Mbps"))
        delay = RTT_MS / 2 if is_bottleneck else 0
        link.SetChannelAttribute("Delay", ns.StringValue(f"{delay}ms"))
        pair = ns.NodeContainer()
        pair.Add(nodes.Get(left))
        pair.Add(nodes.Get(left + 1))
        if is_bottleneck:
            # The device holds one packet, so that all others wait in FQ-CoDel.
            link.SetQueue("ns3::DropTailQueue<Packet>", "MaxSize", ns.StringValue("1p"))
        devices = link.Install(pair)
        if is_bottleneck and folder:
            link.EnableAscii(ns.AsciiTraceHelper().CreateFileStream(f"{folder}/trace"), devices)
        control = ns.TrafficControlHelper()
        if is_bottleneck:
            control.SetRootQueueDisc("ns3::FqCoDelQueueDisc")
        else:
            control.SetRootQueueDisc("ns3::FifoQueueDisc", "MaxSize", ns.StringValue("1000000p"))
        control.Install(devices)
        interfaces = addresses.Assign(devices)
        addresses.NewNetwork()
    ns.Ipv4GlobalRoutingHelper.PopulateRoutingTables()

    sinks = []
    for flow in range(flows):
        port = 5000 + flow
        to = ns.InetSocketAddress(interfaces.GetAddress(1), port).ConvertTo()
        source = ns.BulkSendHelper("ns3::TcpSocketFactory", to)
        source.SetAttribute("SendSize", ns.UintegerValue(1448))
        source.Install(nodes.Get(0)).Start(ns.Seconds(0))
        here = ns.InetSocketAddress(ns.Ipv4Address.GetAny(), port).ConvertTo()
        sink = ns.PacketSinkHelper("ns3::TcpSocketFactory", here)
        application = sink.Install(nodes.Get(last))
        application.Start(ns.Seconds(0))
        sinks.append(application.Get(0))

    monitoring = ns.FlowMonitorHelper()
    monitor = monitoring.InstallAll() if folder else None
    ns.Simulator.Stop(ns.Seconds(seconds))
    wall, cpu = time.perf_counter(), time.process_time()
    ns.Simulator.Run()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    received = sum(sink.GetObject[ns.PacketSink]().__deref__().GetTotalRx() for sink in sinks)
    events = ns.Simulator.GetEventCount()
    if monitor:
        monitor.SerializeToXmlFile(f"{folder}/flows.xml", True, True)
    ns.Simulator.Destroy()
    print(
        json.dumps(
            {
                "wall_s": wall,
                "cpu_s": cpu,
                "all_cpu_s": time.process_time() - begin,
                "events": int(events),
                "goodput_mbps": received * 8 / seconds / 1e6,
                "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
            }
        )
    )


main()
