# ruff: noqa: E501 - sentences read best on one line
"""Answers written by hand over a few results. What is between ⟦ and ⟧ is false; every other number is true."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

from etude.runtime.number_check.check import Evidence

REGIONS = Evidence(
    name="sales_by_region",
    columns=("region", "orders", "revenue"),
    rows=[
        ("West", 509, 61250.75),
        ("North", 412, 48210.5),
        ("South", 388, 39904.25),
        ("East", 275, 31077.0),
        ("Central", 134, 12660.4),
    ],
)
MONTHS = Evidence(
    name="monthly",
    columns=("month", "revenue", "orders", "returns"),
    rows=[
        (date(2024, month, 1), revenue, orders, returns)
        for month, revenue, orders, returns in (
            (1, 81200, 640, 31),
            (2, 77450, 612, 27),
            (3, 90310, 701, 35),
            (4, 95820, 733, 29),
            (5, 93400, 718, 41),
            (6, 102750, 790, 38),
            (7, 99120, 765, 33),
            (8, 87640, 690, 30),
            (9, 104300, 811, 44),
            (10, 111980, 858, 47),
            (11, 128450, 990, 52),
            (12, 143600, 1104, 61),
        )
    ],
)
PRODUCTS = Evidence(
    name="products",
    columns=("product_name", "price", "units_sold", "return_rate"),
    rows=[
        ("Trail Runner 2", Decimal("129.90"), 1843, 0.0412),
        ("Alpine Jacket", Decimal("249.00"), 967, 0.0873),
        ("Camp Stove", Decimal("64.50"), 2210, 0.0231),
        ("Headlamp X3", Decimal("39.95"), 3154, 0.0158),
        ("Dry Bag 20L", Decimal("24.00"), 1422, 0.0095),
        ("Summit Tent", Decimal("419.00"), 388, 0.1134),
        ("Trekking Poles", Decimal("79.90"), 1275, 0.0352),
    ],
)
CHURN = Evidence(
    name="churn",
    columns=("quarter", "customers", "churned", "churn_pct"),
    rows=[
        ("2023-Q1", 5200, 212, 4.08),
        ("2023-Q2", 5410, 198, 3.66),
        ("2023-Q3", 5655, 251, 4.44),
        ("2023-Q4", 5790, 260, 4.49),
        ("2024-Q1", 6012, 225, 3.74),
        ("2024-Q2", 6350, 208, 3.28),
    ],
)
COUNTRIES = Evidence(
    name="countries",
    columns=("country", "customers", "revenue_eur_m"),
    rows=[
        ("Germany", 1204, 18.42),
        ("United Kingdom", 1120, 16.95),
        ("France", 987, 14.07),
        ("Italy", 701, 8.31),
        ("Spain", 612, 7.88),
        ("Switzerland", 243, 6.44),
        ("Netherlands", 355, 6.02),
        ("Sweden", 298, 5.47),
        ("Poland", 410, 3.96),
        ("Denmark", 176, 3.48),
        ("Austria", 187, 3.12),
        ("Norway", 142, 3.02),
        ("Belgium", 203, 2.95),
        ("Ireland", 118, 2.64),
        ("Finland", 129, 2.21),
        ("Portugal", 154, 1.71),
        ("Czechia", 161, 1.38),
        ("Greece", 97, 0.82),
        ("Hungary", 88, 0.71),
        ("Romania", 76, 0.54),
    ],
)
CHANNELS_2023 = Evidence(
    name="channels_2023",
    columns=("channel", "visits", "revenue"),
    rows=[
        ("Web", 52340, 1_920_000),
        ("Mobile", 61870, 1_410_000),
        ("Retail", 18220, 874_000),
        ("Partner", 4410, 233_000),
    ],
)
CHANNELS_2024 = Evidence(
    name="channels_2024",
    columns=("channel", "visits", "revenue"),
    rows=[
        ("Web", 57910, 2_180_000),
        ("Mobile", 83420, 2_070_000),
        ("Retail", 16050, 791_000),
        ("Partner", 6120, 345_000),
    ],
)
TOTAL = Evidence(name="q1", columns=("total_orders",), rows=[(9412,)])
CANCELLED = Evidence(name="q2", columns=("cancelled",), rows=[(347,)])
PRINTED = Evidence(
    name="cell 3",
    text="n = 1520\nmean delivery_days: 4.327\nmedian delivery_days: 4.0\np95: 9.85\ncorrelation: -0.4127\n"
    "late       212\non time   1308\n",
)
LONG = Evidence(
    name="orders",
    columns=("order_id", "placed_at", "amount"),
    rows=[(10230 + 7 * i, date(2024, 5, 1 + i % 28), Decimal(4525 + 1313 * i) / 100) for i in range(50)],
    row_count=12480,
)
CALLS = Evidence(
    name="calls",
    columns=("team", "calls", "avg_duration_seconds", "resolved_share"),
    rows=[("Billing", 1830, 412.0, 0.874), ("Technical", 2415, 655.5, 0.7312), ("Sales", 960, 298.25, 0.9105)],
)

CHANNELS = (CHANNELS_2023, CHANNELS_2024)

ANSWERS: list[tuple[tuple[Evidence, ...], str, str]] = [
    # Regions
    ((REGIONS,), "Which region sells most?", "West leads with revenue of $61,250.75 from 509 orders."),
    (
        (REGIONS,),
        "Which region sells most?",
        "West is the strongest region at about $61k, roughly a third of the total revenue of $193,102.90. "
        "Central is the smallest with just 134 orders.",
    ),
    ((REGIONS,), "Which region sells most?", "West leads with revenue of $61,250.75 from ⟦519⟧ orders."),
    (
        (REGIONS,),
        "Revenue by region",
        "Across the five regions there were 1,718 orders worth $193.1K. West alone contributes 31.7% of revenue, "
        "followed by North (25.0%), South (20.7%), East (16.1%) and Central (6.6%).",
    ),
    (
        (REGIONS,),
        "Revenue by region",
        "Across the ⟦six⟧ regions there were ⟦1,781⟧ orders. West alone contributes ⟦36.7%⟧ of revenue.",
    ),
    (
        (REGIONS,),
        "Compare West and Central",
        "West's revenue is 4.8x that of Central, a gap of $48,590.35. Its average order value is also higher: "
        "$120.34 against $94.48.",
    ),
    (
        (REGIONS,),
        "Compare West and Central",
        "West's revenue is ⟦5.3x⟧ that of Central, a gap of ⟦$46,590.35⟧. Its average order value is also higher: "
        "⟦$127.10⟧ against $94.48.",
    ),
    (
        (REGIONS,),
        "How do North and South compare?",
        "North brought in $8,306.25 more than South, which is 20.8% higher, with 24 more orders.",
    ),
    (
        (REGIONS,),
        "How do North and South compare?",
        "North brought in $8,306.25 more than South, which is ⟦28.0%⟧ higher, with ⟦42⟧ more orders.",
    ),
    (
        (REGIONS,),
        "Which regions are largest?",
        "The top two regions, West and North, together generated $109,461.25, or 56.7% of revenue. "
        "The remaining three account for 43.3%.",
    ),
    (
        (REGIONS,),
        "Which regions are largest?",
        "The top two regions, West and North, together generated ⟦$119,461.25⟧, or ⟦61.9%⟧ of revenue.",
    ),
    (
        (REGIONS,),
        "Average revenue per region?",
        "On average a region earns $38,620.58 from 343.6 orders; the average order is worth $112.40.",
    ),
    (
        (REGIONS,),
        "Average revenue per region?",
        "On average a region earns ⟦$36,820.58⟧; the median is $39,904.25.",
    ),
    (
        (REGIONS,),
        "Show revenue by region",
        "| Region | Orders | Revenue |\n|---|---:|---:|\n| West | 509 | 61,250.75 |\n| North | 412 | 48,210.50 |\n"
        "| South | 388 | ⟦39,094.25⟧ |\n| East | 275 | 31,077.00 |\n| Central | ⟦143⟧ | 12,660.40 |",
    ),
    (
        (REGIONS,),
        "Show revenue by region",
        "Here is the ranking:\n\n1. **West**: $61,250.75\n2. **North**: $48,210.50\n3. **South**: $39,904.25\n"
        "4. **East**: $31,077.00\n5. **Central**: $12,660.40\n\nThree regions have more than 300 orders.",
    ),
    (
        (REGIONS,),
        "Umsatz nach Region?",
        "West liegt mit 61.250,75 € vorn, gefolgt von North mit 48.210,5 €. Zusammen sind das 56,7 % des Umsatzes.",
    ),
    # Months
    (
        (MONTHS,),
        "How did revenue develop in 2024?",
        "Revenue grew from 81,200 in January to 143,600 in December 2024, an increase of 76.8%. "
        "The full-year total was 1.22 million across 9,412 orders.",
    ),
    (
        (MONTHS,),
        "How did revenue develop in 2024?",
        "Revenue grew from 81,200 in January to 143,600 in December 2024, an increase of ⟦67.8%⟧. "
        "The full-year total was ⟦1.32 million⟧.",
    ),
    (
        (MONTHS,),
        "How did revenue develop in 2024?",
        "Revenue shrank from 81,200 in January to 143,600 in December, ⟦down 76.8%⟧.",
    ),
    (
        (MONTHS,),
        "What was the best month?",
        "December 2024 was the best month with 143,600 in revenue and 1,104 orders, up 11.8% on November (128,450). "
        "The weakest was February at 77,450.",
    ),
    (
        (MONTHS,),
        "What was the best month?",
        "December 2024 was the best month with 143,600 in revenue and ⟦1,140⟧ orders, ⟦up 14%⟧ on November.",
    ),
    (
        (MONTHS,),
        "Any dips?",
        "There were four months with a decline. August fell most sharply, dropping 11.6% from July's 99,120 to 87,640; "
        "February (-4.6%), May (-2.5%) and July (\u22123.5%) slipped a little.",
    ),
    (
        (MONTHS,),
        "Any dips?",
        "August fell most sharply, dropping ⟦17.6%⟧ from July's 99,120 to ⟦84,640⟧; February slipped ⟦-6.4%⟧.",
    ),
    (
        (MONTHS,),
        "What is the average?",
        "The monthly average is 101,335, with about 784 orders a month. Seven months were below that level "
        "and five above 102,000.",
    ),
    (
        (MONTHS,),
        "What is the average?",
        "The monthly average is ⟦103,315⟧, with about ⟦748⟧ orders a month.",
    ),
    (
        (MONTHS,),
        "Quarterly view?",
        "October, November and December together made 384,030, nearly a third of the year (31.6%).",
    ),
    (
        (MONTHS,),
        "Quarterly view?",
        "October, November and December together made ⟦394,030⟧, which is ⟦35%⟧ of the year.",
    ),
    (
        (MONTHS,),
        "How many returns were there?",
        "468 items were returned over the 12 months, an average of 39 per month, or 5.0% of orders.",
    ),
    (
        (MONTHS,),
        "How many returns were there?",
        "⟦486⟧ items were returned over the ⟦13⟧ months, or ⟦6.0%⟧ of orders.",
    ),
    (
        (MONTHS,),
        "Revenue since 2020?",
        "The data covers only 2024, so nothing can be said about 2020. Revenue in March 2024 was 90.3k, in June 102.8k.",
    ),
    ((MONTHS,), "Revenue trend", "Revenue peaked in ⟦2017⟧ and nearly doubled from February to December."),
    ((MONTHS,), "Revenue trend", "Monthly revenue tripled? No: it rose by 62,400 over the year, i.e. 1.77 times."),
    # Products
    (
        (PRODUCTS,),
        "Which product is returned most?",
        "The Summit Tent has the highest return rate at 11.3%, followed by the Alpine Jacket at 8.7%. "
        "The Dry Bag 20L is returned least, under 1% of the time.",
    ),
    (
        (PRODUCTS,),
        "Which product is returned most?",
        "The Summit Tent has the highest return rate at ⟦13.1%⟧, followed by the Alpine Jacket at ⟦9.7%⟧.",
    ),
    (
        (PRODUCTS,),
        "Units sold",
        "11,259 units were sold over seven products. Headlamp X3 is the best seller (3,154 units, 28% of all units), "
        "more than eight times the 388 tents.",
    ),
    (
        (PRODUCTS,),
        "Units sold",
        "⟦12,159⟧ units were sold over ⟦eight⟧ products. Headlamp X3 is the best seller (3,154 units, ⟦33%⟧ of units).",
    ),
    (
        (PRODUCTS,),
        "Prices?",
        "Prices range from $24.00 to $419.00, with a mean of $143.75 and a median of $79.90. Three products cost over $100.",
    ),
    ((PRODUCTS,), "Prices?", "Prices range from ⟦$42.00⟧ to $419.00, with a mean of ⟦$134.75⟧."),
    (
        (PRODUCTS,),
        "Trail Runner 2 revenue?",
        "The Trail Runner 2 sold 1,843 units at $129.90, which gives about $239,406.",
    ),
    (
        (PRODUCTS,),
        "Compare the jacket with the tent",
        "The Alpine Jacket sold 579 more units than the Summit Tent (967 vs. 388), 2.5 times as many. "
        "Its return rate is 2.6 percentage points lower.",
    ),
    (
        (PRODUCTS,),
        "Compare the jacket with the tent",
        "The Alpine Jacket sold ⟦597⟧ more units than the Summit Tent, ⟦3.5 times⟧ as many. "
        "Its return rate is ⟦4.6 percentage points⟧ lower.",
    ),
    # Churn
    (
        (CHURN,),
        "How is churn?",
        "Churn improved from 4.49% in Q4 2023 to 3.28% in Q2 2024, a drop of 1.21 percentage points. "
        "In absolute terms 208 customers left in the latest quarter, 52 fewer than in Q4 2023.",
    ),
    (
        (CHURN,),
        "How is churn?",
        "Churn improved from 4.49% in Q4 2023 to ⟦3.82%⟧ in Q2 2024, a drop of ⟦1.51 percentage points⟧.",
    ),
    (
        (CHURN,),
        "Customer growth?",
        "The customer base grew by 1,150, from 5,200 to 6,350 (+22.1%), over six quarters.",
    ),
    (
        (CHURN,),
        "Customer growth?",
        "The customer base grew by ⟦1,510⟧, from 5,200 to 6,350 (⟦+29.1%⟧), over ⟦seven⟧ quarters.",
    ),
    (
        (CHURN,),
        "Total churned?",
        "In total 1,354 customers churned, on average 225.7 per quarter; the average churn rate was 3.95%.",
    ),
    ((CHURN,), "Total churned?", "In total ⟦1,534⟧ customers churned, on average ⟦255.7⟧ per quarter."),
    ((CHURN,), "Worst quarter?", "Q4 2023 was worst: 260 of 5,790 customers churned, a rate of 4.49%."),
    ((CHURN,), "Worst quarter?", "Q4 2023 was worst: ⟦206⟧ of 5,790 customers churned, a rate of ⟦4.94%⟧."),
    # Countries
    (
        (COUNTRIES,),
        "Which countries matter most?",
        "Germany is first with €18.42 million and 1,204 customers (16.7% of revenue). The top three countries - Germany, "
        "the United Kingdom and France - bring in €49.4 million, or 44.9% of the €110.1 million total.",
    ),
    (
        (COUNTRIES,),
        "Which countries matter most?",
        "Germany is first with €18.42 million and ⟦1,240⟧ customers (⟦19.7%⟧ of revenue). The top three countries bring "
        "in ⟦€52.4 million⟧, or ⟦47.6%⟧ of the total.",
    ),
    (
        (COUNTRIES,),
        "How many countries?",
        "We have 7,461 customers in 20 countries. Five countries have more than 500 customers, and five bring in "
        "less than €2 million.",
    ),
    (
        (COUNTRIES,),
        "How many countries?",
        "We have ⟦7,641⟧ customers in ⟦22⟧ countries.",
    ),
    (
        (COUNTRIES,),
        "Revenue per customer",
        "Switzerland stands out: 243 customers spend €6.44 million, about €26,500 per customer, "
        "against €7,105 in Romania.",
    ),
    (
        (COUNTRIES,),
        "Revenue per customer",
        "Switzerland stands out: 243 customers spend €6.44 million, about ⟦€29,800⟧ per customer.",
    ),
    (
        (COUNTRIES,),
        "Nordics?",
        "Sweden, Denmark, Norway and Finland together have 745 customers and €14.18M in revenue, 12.9% of the total.",
    ),
    (
        (COUNTRIES,),
        "Nordics?",
        "Sweden, Denmark, Norway and Finland together have ⟦775⟧ customers and ⟦€16.18M⟧ in revenue.",
    ),
    # Two results
    (
        CHANNELS,
        "How did channels change from 2023 to 2024?",
        "Total revenue rose 21.4% from $4.437M to $5.386M. Mobile grew fastest in absolute terms, adding $660,000 "
        "(+46.8%), while Retail declined by 9.5% to $791,000.",
    ),
    (
        CHANNELS,
        "How did channels change from 2023 to 2024?",
        "Total revenue rose ⟦24.1%⟧ from $4.437M to ⟦$5.836M⟧. Mobile grew fastest, adding ⟦$606,000⟧ (⟦+42.8%⟧), "
        "while Retail declined by ⟦7.9%⟧.",
    ),
    (
        CHANNELS,
        "Share of mobile?",
        "Mobile's share of revenue went from 31.8% in 2023 to 38.4% in 2024, a gain of 6.7 percentage points.",
    ),
    (
        CHANNELS,
        "Share of mobile?",
        "Mobile's share of revenue went from ⟦38.1%⟧ in 2023 to ⟦34.8%⟧ in 2024.",
    ),
    (
        CHANNELS,
        "Visits?",
        "Visits increased by 26,660 to 163,500 overall (19.5%). Partner visits were up 38.8%, Retail visits down 11.9%.",
    ),
    (CHANNELS, "Visits?", "Visits increased by ⟦22,660⟧ to ⟦165,300⟧ overall. Partner visits were ⟦up 83.8%⟧."),
    # Single values
    (
        (TOTAL, CANCELLED),
        "What share of orders is cancelled?",
        "Of 9,412 orders, 347 were cancelled: a cancellation rate of 3.7%. That leaves 9,065 orders.",
    ),
    (
        (TOTAL, CANCELLED),
        "What share of orders is cancelled?",
        "Of 9,412 orders, ⟦374⟧ were cancelled: a cancellation rate of ⟦4.7%⟧.",
    ),
    ((TOTAL,), "How many orders?", "There are 9,412 orders in total."),
    ((TOTAL,), "How many orders?", "There are ⟦94,120⟧ orders in total, i.e. about ⟦26⟧ per day."),
    # Printed text
    (
        (PRINTED,),
        "Delivery times?",
        "Over 1,520 deliveries the mean was 4.33 days (median 4), and 95% arrived within 9.9 days. 212 (13.9%) were late. "
        "Delivery time and rating correlate at -0.41.",
    ),
    (
        (PRINTED,),
        "Delivery times?",
        "Over 1,520 deliveries the mean was ⟦4.72⟧ days, and ⟦221⟧ were late (⟦17.9%⟧). They correlate at ⟦0.41⟧.",
    ),
    # A result of which only the first rows were seen
    (
        (LONG,),
        "List the orders of May 2024",
        "The query returned 12,480 orders; the first is order 10230 of 1 May 2024 with an amount of 45.25.",
    ),
    (
        (LONG,),
        "List the orders of May 2024",
        "The query returned ⟦12,840⟧ orders with a total of ⟦$1,845,200.00⟧.",
    ),
    # Durations and shares
    (
        (CALLS,),
        "Which team is fastest?",
        "Sales is fastest with an average of about 5 minutes (298 seconds) and resolves 91% of its calls; Technical needs "
        "10.9 minutes and resolves 73.1%. The three teams took 5,205 calls.",
    ),
    (
        (CALLS,),
        "Which team is fastest?",
        "Sales is fastest with an average of about ⟦8 minutes⟧ and resolves ⟦94%⟧ of its calls; Technical needs "
        "⟦10.9 hours⟧.",
    ),
    (
        (CALLS,),
        "Busiest team?",
        "Technical handles 2,415 calls, nearly half of all (46.4%) and two and a half times as many as Sales.",
    ),
    (
        (CALLS,),
        "Busiest team?",
        "Technical handles ⟦2,451⟧ calls, ⟦two thirds⟧ of all calls.",
    ),
]

WARDS = Evidence(
    name="wards",
    columns=("department", "admissions", "avg_stay_days", "readmission_rate", "nurses"),
    rows=[
        ("Emergency", 4875, 0.9, 0.064, 37),
        ("Pediatrics", 1530, 2.9, 0.031, 22),
        ("Cardiology", 1284, 5.4, 0.083, 18),
        ("Orthopedics", 967, 4.1, 0.052, 14),
        ("Neurology", 742, 6.8, 0.097, 11),
        ("Oncology", 611, 8.3, 0.141, 16),
    ],
)
ROUTES = Evidence(
    name="routes",
    columns=("route", "requests", "p95_ms", "error_rate"),
    rows=[
        ("/home", 184220, 231, 0.012),
        ("/product", 141877, 394, 0.019),
        ("/search", 96340, 812, 0.034),
        ("/cart", 38915, 466, 0.027),
        ("/checkout", 21408, 1240, 0.061),
    ],
)
YEARS = Evidence(
    name="yearly",
    columns=("year", "sales_m", "stores"),
    rows=[
        (2019, 412.6, 38),
        (2020, 367.2, 31),
        (2021, 498.9, 44),
        (2022, 561.3, 47),
        (2023, 548.0, 45),
        (2024, 623.4, 52),
    ],
)
EMPTY = Evidence(name="late", columns=("order_id", "days_late"), rows=[])
SURVEY = Evidence(
    name="cell 1",
    text="       group     n   mean    std\n0    control   248  71.30  12.42\n1  treatment   251  75.85  11.97\n"
    "t = 4.1662, p = 0.000037\neffect size (Cohen's d): 0.3731\n",
)

# Of other results, in other words.
LATER: list[tuple[tuple[Evidence, ...], str, str]] = [
    (
        (WARDS,),
        "Which departments are busiest?",
        "**Emergency** is by far the busiest department: 4,875 of the 10,009 admissions, i.e. 48.7%. "
        "Pediatrics follows with 1,530 (15.3%) and Cardiology with 1,284 (12.8%).",
    ),
    (
        (WARDS,),
        "Which departments are busiest?",
        "**Emergency** is by far the busiest department: 4,875 of the ⟦11,009⟧ admissions, i.e. ⟦44.3%⟧. "
        "Pediatrics follows with 1,530 (⟦13.9%⟧).",
    ),
    (
        (WARDS,),
        "Length of stay?",
        "Oncology patients stay longest, 8.3 days on average, more than twice the 2.9 days in Pediatrics. "
        "Neurology is second at 6.8 days.",
    ),
    (
        (WARDS,),
        "Length of stay?",
        "Oncology patients stay longest, ⟦9.3 days⟧ on average, ⟦four times⟧ Pediatrics' stay.",
    ),
    (
        (WARDS,),
        "Readmissions?",
        "Readmission is highest in Oncology (14.1%) and lowest in Pediatrics (3.1%), a spread of 11 percentage points. "
        "Two departments, Neurology and Oncology, are above 9%.",
    ),
    (
        (WARDS,),
        "Readmissions?",
        "Readmission is highest in Oncology (⟦11.4%⟧) and lowest in Pediatrics (3.1%), a spread of "
        "⟦13.5 percentage points⟧.",
    ),
    (
        (WARDS,),
        "Nurse workload?",
        "Each nurse in Emergency sees about 132 admissions, compared to 38 in Oncology. Across all six departments there "
        "are 118 nurses, or about 85 admissions per nurse.",
    ),
    (
        (WARDS,),
        "Nurse workload?",
        "Each nurse in Emergency sees about ⟦152⟧ admissions. Across all ⟦seven⟧ departments there are ⟦128⟧ nurses.",
    ),
    (
        (WARDS,),
        "Summary please",
        "### Key findings\n\n- Total admissions: 10,009\n- Busiest: Emergency (4,875)\n- Longest stay: Oncology (8.3 days)\n"
        "- Highest readmission rate: Oncology, 14.1%\n- Average admissions per department: 1,668",
    ),
    (
        (WARDS,),
        "Summary please",
        "### Key findings\n\n- Total admissions: ⟦10,090⟧\n- Busiest: Emergency (⟦4,785⟧)\n- Longest stay: Oncology (8.3 days)\n"
        "- Highest readmission rate: Oncology, ⟦14.7%⟧\n- Average admissions per department: ⟦1,866⟧",
    ),
    (
        (ROUTES,),
        "Which route is slow?",
        "`/checkout` is the slowest route with a p95 of 1,240 ms (1.24 s), 5.4x the 231 ms of `/home`. It also has the "
        "highest error rate, 6.1%, although it gets just 4.4% of the traffic.",
    ),
    (
        (ROUTES,),
        "Which route is slow?",
        "`/checkout` is the slowest route with a p95 of ⟦1,420 ms⟧, ⟦6.1x⟧ the 231 ms of `/home`. Its error rate is ⟦8.1%⟧.",
    ),
    (
        (ROUTES,),
        "Traffic by route",
        "The five routes served 482,760 requests. /home takes 38% of them, /product 29% and /search 20%; together that is "
        "422,437 requests.",
    ),
    (
        (ROUTES,),
        "Traffic by route",
        "The five routes served ⟦428,760⟧ requests. /home takes ⟦43%⟧ of them, /product ⟦25%⟧.",
    ),
    (
        (ROUTES,),
        "How many errors on /search?",
        "With 96,340 requests and an error rate of 3.4%, /search produced roughly 3,276 errors.",
    ),
    (
        (ROUTES,),
        "How many errors on /search?",
        "With 96,340 requests and an error rate of 3.4%, /search produced roughly ⟦3,726⟧ errors.",
    ),
    (
        (YEARS,),
        "How did sales develop?",
        "Sales rose from 412.6 million in 2019 to 623.4 million in 2024, up 51% in five years (a CAGR of 8.6%). The only "
        "setbacks were 2020 (-11.0%) and 2023 (-2.4%).",
    ),
    (
        (YEARS,),
        "How did sales develop?",
        "Sales rose from 412.6 million in 2019 to ⟦632.4 million⟧ in 2024, ⟦up 56%⟧ in five years. The only setbacks were "
        "2020 (⟦-14.0%⟧) and 2023 (⟦-5.4%⟧).",
    ),
    (
        (YEARS,),
        "How did sales develop?",
        "After the dip in 2020, sales jumped 35.9% in 2021 and grew another 12.5% in 2022. In 2024 they reached a record of "
        "$623.4M, 75.4 million more than the year before.",
    ),
    (
        (YEARS,),
        "How did sales develop?",
        "After the dip in 2020, sales jumped ⟦39.5%⟧ in 2021. In 2024 they reached a record of $623.4M, ⟦57.4 million⟧ more "
        "than the year before.",
    ),
    (
        (YEARS,),
        "Sales per store?",
        "In 2024 each of the 52 stores sold about 12.0 million on average, up from 10.9 million in 2019 with 38 stores.",
    ),
    (
        (YEARS,),
        "Sales per store?",
        "In 2024 each of the 52 stores sold about ⟦13.2 million⟧ on average, with ⟦15⟧ stores added since 2019.",
    ),
    (
        (YEARS,),
        "How many stores?",
        "The chain has 52 stores, 14 more than in 2019 (+37%) and 7 more than in 2023.",
    ),
    (
        (YEARS,),
        "Best year?",
        "The best year was 2024; before ⟦2016⟧ no data is available. Mean sales were 501.9 million.",
    ),
    ((EMPTY,), "Which orders are late?", "No orders are late: the query returned 0 rows."),
    ((EMPTY,), "Which orders are late?", "⟦12⟧ orders are late, by ⟦3⟧ days on average."),
    (
        (SURVEY,),
        "Did the treatment work?",
        "Yes. The treatment group (n = 251) scored 75.85 on average against 71.3 in the control group (n = 248), a "
        "difference of 4.55 points (t = 4.17, p < 0.001). Cohen's d is 0.37, a small to medium effect.",
    ),
    (
        (SURVEY,),
        "Did the treatment work?",
        "Yes. The treatment group (n = ⟦215⟧) scored ⟦78.55⟧ on average against 71.3 in the control group, a "
        "difference of ⟦7.25⟧ points. Cohen's d is ⟦0.73⟧.",
    ),
    (
        (REGIONS, MONTHS),
        "Overview of 2024",
        "Over the year we took 9,412 orders; the five regions in the sample account for 1,718 of them (18.3%).",
    ),
    (
        (REGIONS, MONTHS),
        "Overview of 2024",
        "Over the year we took ⟦9,142⟧ orders; the five regions in the sample account for 1,718 of them (⟦21.3%⟧).",
    ),
    (
        (CHURN,),
        "Top 2 quarters by customers since 2023?",
        "The top 2 quarters are 2024-Q2 (6,350 customers) and 2024-Q1 (6,012), a difference of 338 or 5.6%.",
    ),
    (
        (CHURN,),
        "Top 2 quarters by customers since 2023?",
        "The top 2 quarters are 2024-Q2 (6,350 customers) and 2024-Q1 (6,012), a difference of ⟦383⟧ or ⟦6.5%⟧.",
    ),
    (
        (PRODUCTS,),
        "Cheap products?",
        "Four of the seven products cost less than $100. The cheapest, Dry Bag 20L, costs $24; Headlamp X3 is $39.95, "
        "about 66% more.",
    ),
    (
        (PRODUCTS,),
        "Cheap products?",
        "⟦Five⟧ of the seven products cost less than $100. The cheapest, Dry Bag 20L, costs $24; Headlamp X3 is "
        "⟦$34.95⟧, about ⟦46%⟧ more.",
    ),
    (
        (COUNTRIES,),
        "How concentrated is revenue?",
        "Revenue is concentrated: the five largest markets generate 59.6% of it, while the bottom ten countries contribute "
        "just 17.3%.",
    ),
    (
        (COUNTRIES,),
        "How concentrated is revenue?",
        "Revenue is concentrated: the five largest markets generate ⟦69.6%⟧ of it, and Germany alone ⟦nearly a quarter⟧.",
    ),
    (
        (MONTHS,),
        "Second half?",
        "In the second half of 2024 revenue was 675,090, compared with 540,930 in the first half, a 24.8% increase.",
    ),
    (
        (MONTHS,),
        "Second half?",
        "In the second half of 2024 revenue was ⟦657,090⟧, compared with 540,930 in the first half, a ⟦28.4%⟧ increase.",
    ),
    (
        (CALLS,),
        "How long are calls?",
        "Billing calls take 6.9 minutes on average (412 s), Technical calls 243.5 seconds longer.",
    ),
    (
        (CALLS,),
        "How long are calls?",
        "Billing calls take ⟦9.6 minutes⟧ on average, Technical calls ⟦423.5 seconds⟧ longer.",
    ),
]

STAFF = Evidence(
    "staff",
    ("team", "headcount", "avg_salary", "open_roles", "attrition_pct"),
    [
        ("Engineering", 84, 98250.0, 7, 8.3),
        ("Sales", 41, 72100.0, 3, 17.1),
        ("Support", 29, 48900.0, 0, 24.1),
        ("Finance", 12, 81400.0, 1, 0.0),
    ],
)
SENSOR = Evidence(
    "readings",
    ("day", "avg_temp", "max_temp", "alerts"),
    [
        (date(2025, 6, d), t, m, a)
        for d, t, m, a in [
            (1, 21.4, 27.9, 0),
            (2, 22.8, 29.3, 1),
            (3, 25.1, 33.6, 4),
            (4, 26.7, 35.2, 6),
            (5, 24.0, 30.8, 2),
            (6, 19.9, 25.0, 0),
            (7, 20.3, 26.1, 0),
        ]
    ],
)
INV = Evidence(
    "stock",
    ("sku", "warehouse", "on_hand", "reorder_level"),
    [
        ("A-100", "Lyon", 240, 300),
        ("A-101", "Lyon", 1250, 400),
        ("B-200", "Porto", 75, 120),
        ("B-201", "Porto", 980, 500),
        ("C-300", "Gdansk", 40, 60),
    ],
)

LAST: list[tuple[tuple[Evidence, ...], str, str]] = [
    (
        (STAFF,),
        "Team sizes?",
        "We employ 166 people in four teams. Engineering is the largest with 84 people, just over half of the company (50.6%), followed by Sales with 41.",
    ),
    (
        (STAFF,),
        "Team sizes?",
        "We employ ⟦176⟧ people in four teams. Engineering is the largest with 84 people, ⟦54.6%⟧ of the company, followed by Sales with ⟦44⟧.",
    ),
    (
        (STAFF,),
        "Salaries?",
        "Engineers earn $98,250 on average, about twice the $48,900 in Support. The gap between Engineering and Sales is $26,150, i.e. Sales earns 26.6% less.",
    ),
    (
        (STAFF,),
        "Salaries?",
        "Engineers earn ⟦$92,850⟧ on average, about ⟦three times⟧ the pay in Support. The gap between Engineering and Sales is ⟦$21,650⟧, i.e. Sales earns ⟦22.6%⟧ less.",
    ),
    (
        (STAFF,),
        "Attrition?",
        "Attrition is worst in Support at 24.1%, seven points above Sales (17.1%). Finance lost nobody (0%). There are 11 open roles, 7 of them in Engineering.",
    ),
    (
        (STAFF,),
        "Attrition?",
        "Attrition is worst in Support at ⟦21.4%⟧. There are ⟦12⟧ open roles, ⟦8⟧ of them in Engineering.",
    ),
    (
        (SENSOR,),
        "Weather that week?",
        "The week averaged 22.9 degrees. The peak came on 4 June 2025 with 35.2 degrees and 6 alerts; in total there were 13 alerts on four days, 10 of them on June 3 and 4.",
    ),
    (
        (SENSOR,),
        "Weather that week?",
        "The week averaged ⟦24.9⟧ degrees. The peak came on 4 June 2025 with ⟦36.2⟧ degrees; in total there were ⟦15⟧ alerts. It cooled down on ⟦June 9⟧.",
    ),
    (
        (SENSOR,),
        "How much did it cool?",
        "From June 4 to June 6 the average temperature dropped by 6.8 degrees, from 26.7 to 19.9, a 25% decline.",
    ),
    (
        (SENSOR,),
        "How much did it cool?",
        "From June 4 to June 6 the average temperature dropped by ⟦8.6⟧ degrees, from 26.7 to 19.9, a ⟦35%⟧ decline.",
    ),
    (
        (INV,),
        "What must be reordered?",
        "Three items are below their reorder level: A-100 (240 vs. 300), B-200 (75 vs. 120) and C-300 (40 vs. 60). A-100 is 60 units short, B-200 is 45 units short.",
    ),
    (
        (INV,),
        "What must be reordered?",
        "A-100 is ⟦80⟧ units short, B-200 is ⟦54⟧ units short. Total stock is ⟦2,685⟧ units.",
    ),
    (
        (INV,),
        "Stock by warehouse?",
        "Lyon holds 1,490 units and Porto 1,055; Gdansk has just 40, 1.5% of the 2,585 in stock.",
    ),
    ((INV,), "Stock by warehouse?", "Lyon holds ⟦1,590⟧ units and Porto ⟦1,155⟧; Gdansk has ⟦3.5%⟧ of the stock."),
    (
        (YEARS,),
        "Compare 2021 with 2019",
        "Sales in 2021 were 86.3 million above 2019, a rise of 20.9%, with six more stores.",
    ),
    (
        (YEARS,),
        "Compare 2021 with 2019",
        "Sales in 2021 were ⟦68.3 million⟧ above 2019, a rise of ⟦16.6%⟧, with ⟦eight⟧ more stores.",
    ),
    (
        (PRODUCTS,),
        "Revenue by product?",
        "Multiplying price and units, the Alpine Jacket comes first with $240,783, narrowly ahead of the Trail Runner 2 ($239,405.70). The Summit Tent makes $162,572.",
    ),
    (
        (PRODUCTS,),
        "Revenue by product?",
        "Multiplying price and units, the Alpine Jacket comes first with ⟦$247,083⟧. The Summit Tent makes ⟦$126,572⟧.",
    ),
    (
        (WARDS,),
        "Ratio?",
        "Emergency alone admits more patients than Pediatrics, Cardiology and Orthopedics combined (4,875 versus 3,781).",
    ),
    (
        (WARDS,),
        "Ratio?",
        "Emergency alone admits more patients than Pediatrics, Cardiology and Orthopedics combined (4,875 versus ⟦3,871⟧).",
    ),
]
