"""Questions about the sample shop, each with the SQL that a person would write for it."""

from __future__ import annotations

from datetime import date

TODAY = date(2025, 12, 15)

QUESTIONS: dict[str, str] = {
    # counts
    "How many customers are there?": "SELECT count(*) FROM customers",
    "How many orders were placed in 2025?": "SELECT count(*) FROM orders WHERE year(ordered) = 2025",
    "Number of products": "SELECT count(*) FROM products",
    "How many orders were cancelled?": "SELECT count(*) FROM orders WHERE status = 'cancelled'",
    "How many customers are in Berlin?": "SELECT count(*) FROM customers WHERE city IN ('Berlin', 'Berlin ')",
    "How many different countries do our customers come from?": "SELECT count(DISTINCT country) FROM customers",
    "How many orders have an amount over 100?": "SELECT count(*) FROM orders WHERE amount > 100",
    "How many enterprise customers are there?": "SELECT count(*) FROM customers WHERE segment = 'enterprise'",
    "How many orders did we get in March 2024?": (
        "SELECT count(*) FROM orders WHERE ordered >= '2024-03-01' AND ordered < '2024-04-01'"
    ),
    "How many orders were made by customers from DE?": (
        "SELECT count(*) FROM orders o JOIN customers c USING (customer_id) WHERE c.country = 'DE'"
    ),
    "How many customers have placed an order?": (
        "SELECT count(*) FROM customers WHERE customer_id IN (SELECT customer_id FROM orders)"
    ),
    "How many customers have ordered Earl Grey?": (
        "SELECT count(DISTINCT o.customer_id) FROM orders o JOIN order_lines USING (order_id) "
        "JOIN products p USING (product_id) JOIN customers USING (customer_id) WHERE p.name = 'Earl Grey'"
    ),
    # groups
    "How many orders are there per status?": "SELECT status, count(*) FROM orders GROUP BY 1",
    "Number of orders by channel": "SELECT channel, count(*) FROM orders GROUP BY 1",
    "Orders by channel": "SELECT channel, count(*) FROM orders GROUP BY 1",
    "distribution of status": "SELECT status, count(*) FROM orders GROUP BY 1",
    "spread of prices": "SELECT min(price), median(price), max(price), stddev(price) FROM products",
    "How many missing values in email?": "SELECT count(*) FROM customers WHERE email IS NULL",
    "Show all information about customers": "SELECT * FROM customers",
    "List the products in descending order of price": (
        "SELECT name, product_id, price FROM products ORDER BY price DESC"
    ),
    "How many orders were placed in 2024 or 2025?": "SELECT count(*) FROM orders WHERE year(ordered) IN (2024, 2025)",
    "How many prodcts are there?": "SELECT count(*) FROM products",
    "Names of products more expensive than 30": "SELECT name FROM products WHERE price > 30",
    "most expensive product by price": "SELECT name, product_id, price FROM products ORDER BY price DESC LIMIT 1",
    "How many customers are there in each country?": "SELECT country, count(*) FROM customers GROUP BY 1",
    "What is the average amount of orders for each channel?": "SELECT channel, avg(amount) FROM orders GROUP BY 1",
    "What is the total amount per month in 2025?": (
        "SELECT date_trunc('month', ordered), sum(amount) FROM orders WHERE year(ordered) = 2025 GROUP BY 1"
    ),
    "Total amount of orders by customer segment": (
        "SELECT c.segment, sum(o.amount) FROM orders o JOIN customers c USING (customer_id) GROUP BY 1"
    ),
    "Total quantity by product category": (
        "SELECT p.category, sum(l.quantity) FROM order_lines l JOIN products p USING (product_id) GROUP BY 1"
    ),
    "Number of orders per quarter": "SELECT date_trunc('quarter', ordered), count(*) FROM orders GROUP BY 1",
    "How many orders per country and channel?": (
        "SELECT c.country, o.channel, count(*) FROM orders o JOIN customers c USING (customer_id) GROUP BY 1, 2"
    ),
    "monthly number of orders for customers in FR": (
        "SELECT date_trunc('month', ordered), count(*) FROM orders o JOIN customers c USING (customer_id) "
        "WHERE c.country = 'FR' GROUP BY 1"
    ),
    "What is the median price of products in each category?": "SELECT category, median(price) FROM products GROUP BY 1",
    "What is the highest price in each category?": "SELECT category, max(price) FROM products GROUP BY 1",
    # single values
    "What is the average price of products?": "SELECT avg(price) FROM products",
    "What is the total amount of completed orders?": "SELECT sum(amount) FROM orders WHERE status = 'completed'",
    "What is the largest amount of an order?": "SELECT max(amount) FROM orders",
    "What was the average order amount last month?": (
        "SELECT avg(amount) FROM orders WHERE ordered >= '2025-11-01' AND ordered < '2025-12-01'"
    ),
    "What is the total amount of orders in the past 6 months?": (
        "SELECT sum(amount) FROM orders WHERE ordered >= '2025-06-15' AND ordered < '2025-12-16'"
    ),
    "What is the price of the Moka Pot?": "SELECT price FROM products WHERE name = 'Moka Pot'",
    "total amount of orders year to date": (
        "SELECT sum(amount) FROM orders WHERE ordered >= '2025-01-01' AND ordered < '2025-12-16'"
    ),
    # lists
    "List the names of all products": "SELECT name FROM products",
    "Show the names and prices of the products in the category Tea": (
        "SELECT name, price FROM products WHERE category = 'Tea'"
    ),
    "Which products have a price between 10 and 20?": (
        "SELECT name, product_id FROM products WHERE price BETWEEN 10 AND 20"
    ),
    "Which products have a price of at least 50?": "SELECT name, product_id FROM products WHERE price >= 50",
    "Which customers are from JP?": "SELECT name, customer_id FROM customers WHERE country = 'JP'",
    "Names of customers whose name starts with 'Anna'": "SELECT name FROM customers WHERE name ILIKE 'Anna%'",
    "Which customers have no orders?": (
        "SELECT name, customer_id FROM customers c WHERE NOT EXISTS (FROM orders o WHERE o.customer_id = c.customer_id)"
    ),
    "Which products have no order lines?": (
        "SELECT name, product_id FROM products WHERE product_id NOT IN (SELECT product_id FROM order_lines)"
    ),
    "Which customers without an email are in FR?": (
        "SELECT name, customer_id FROM customers WHERE email IS NULL AND country = 'FR'"
    ),
    "Which customers have more than 20 orders?": (
        "SELECT c.name, c.customer_id, count(*) FROM orders JOIN customers c USING (customer_id) "
        "GROUP BY ALL HAVING count(*) > 20"
    ),
    "Which cities do customers in SE live in?": "SELECT DISTINCT trim(city) FROM customers WHERE country = 'SE'",
    "What are the categories of products?": "SELECT name, category FROM products",
    "What are the different categories of products?": "SELECT DISTINCT category FROM products",
    # order, top and most
    "What are the top 5 products by price?": (
        "SELECT name, product_id, price FROM products ORDER BY price DESC LIMIT 5"
    ),
    "Which product has the highest price?": "SELECT name, product_id, price FROM products ORDER BY price DESC LIMIT 1",
    "What is the cheapest product?": "SELECT name, product_id, price FROM products ORDER BY price LIMIT 1",
    "Which customer has the most orders?": (
        "SELECT c.name, c.customer_id, count(*) FROM orders JOIN customers c USING (customer_id) GROUP BY ALL "
        "ORDER BY 3 DESC, 1, 2 LIMIT 1"
    ),
    "Which country has the fewest customers?": "SELECT country, count(*) FROM customers GROUP BY 1 ORDER BY 2 LIMIT 1",
    "Top 10 customers by total amount": (
        "SELECT c.name, c.customer_id, sum(amount) FROM orders JOIN customers c USING (customer_id) GROUP BY ALL "
        "ORDER BY 3 DESC LIMIT 10"
    ),
    "What are the 3 cities with the most customers?": (
        "SELECT trim(city), count(*) FROM customers GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 3"
    ),
    "List all products ordered by price from highest to lowest": (
        "SELECT name, product_id, price FROM products ORDER BY price DESC"
    ),
    "Which category has the highest average price?": (
        "SELECT category, avg(price) FROM products GROUP BY 1 ORDER BY 2 DESC LIMIT 1"
    ),
    "Which channel had the highest total amount in 2024?": (
        "SELECT channel, sum(amount) FROM orders WHERE year(ordered) = 2024 GROUP BY 1 ORDER BY 2 DESC LIMIT 1"
    ),
    # negation and alternatives
    "How many orders are not completed?": "SELECT count(*) FROM orders WHERE NOT status = 'completed'",
    "How many orders are returned or cancelled?": (
        "SELECT count(*) FROM orders WHERE status IN ('returned', 'cancelled')"
    ),
    "Which customers did not order Earl Grey?": (
        "SELECT name, customer_id FROM customers WHERE customer_id NOT IN (SELECT o.customer_id FROM orders o "
        "JOIN order_lines USING (order_id) JOIN products p USING (product_id) WHERE p.name = 'Earl Grey')"
    ),
    "How many orders were placed on weekends?": "SELECT count(*) FROM orders WHERE isodow(ordered) IN (6, 7)",
    "Total amount of orders in the app or store channel": (
        "SELECT sum(amount) FROM orders WHERE channel IN ('app', 'store')"
    ),
    # ratios, shares and averages of counts
    "What percentage of orders were returned?": (
        "SELECT 100.0 * count(*) FILTER (status = 'returned') / count(*) FROM orders"
    ),
    "What is the ratio of cancelled orders to completed orders?": (
        "SELECT count(*) FILTER (status = 'cancelled') / count(*) FILTER (status = 'completed') FROM orders"
    ),
    "What share of orders was returned for each channel?": (
        "SELECT channel, count(*) FILTER (status = 'returned') / count(*) FROM orders GROUP BY 1"
    ),
    "What is the average number of orders per customer?": (
        "SELECT avg(n) FROM (SELECT count(*) AS n FROM orders JOIN customers USING (customer_id) GROUP BY customer_id)"
    ),
    "What is the ratio of orders to customers?": (
        "SELECT (SELECT count(*) FROM orders) / (SELECT count(*) FROM customers)"
    ),
    "Share of orders by status": "SELECT status, count(*) / sum(count(*)) OVER () FROM orders GROUP BY 1",
    # more than one number
    "How many customers have more than 20 orders?": (
        "SELECT count(*) FROM (SELECT customer_id FROM orders JOIN customers USING (customer_id) "
        "GROUP BY 1 HAVING count(*) > 20)"
    ),
    "What are the most common statuses of orders, top 2?": (
        "SELECT status, count(*) FROM orders GROUP BY 1 ORDER BY 2 DESC LIMIT 2"
    ),
    "How many customers are in Germany?": "SELECT count(*) FROM customers WHERE country = 'DE'",
    "What is the revenue per quarter?": "SELECT date_trunc('quarter', ordered), sum(amount) FROM orders GROUP BY 1",
    "Number of orders and total amount by channel": "SELECT channel, count(*), sum(amount) FROM orders GROUP BY 1",
    "For each category, the lowest and the highest price": (
        "SELECT category, min(price), max(price) FROM products GROUP BY 1"
    ),
    "Categories with an average price above 20": (
        "SELECT category, avg(price) FROM products GROUP BY 1 HAVING avg(price) > 20"
    ),
    "Return the name, city and number of orders of customers in SE": (
        "SELECT c.name, trim(c.city), count(*) FROM orders JOIN customers c USING (customer_id) WHERE c.country = 'SE' "
        "GROUP BY c.customer_id, c.name, c.city"
    ),
    # change, averages and the best of each
    "What is the growth of the total amount per month in 2025?": (
        "SELECT m, t, 100 * (t - lag(t) OVER (ORDER BY m)) / lag(t) OVER (ORDER BY m) FROM ("
        "SELECT date_trunc('month', ordered) AS m, sum(amount) AS t FROM orders WHERE year(ordered) = 2025 GROUP BY 1)"
    ),
    "year over year change in the number of orders": (
        "SELECT y, n, n - lag(n) OVER (ORDER BY y) FROM ("
        "SELECT date_trunc('year', ordered) AS y, count(*) AS n FROM orders GROUP BY 1)"
    ),
    "Which products have a price above the average?": (
        "SELECT name, product_id FROM products WHERE price > (SELECT avg(price) FROM products)"
    ),
    "What is the most expensive product in each category?": (
        "SELECT category, name, product_id, price FROM products "
        "QUALIFY row_number() OVER (PARTITION BY category ORDER BY price DESC) = 1"
    ),
    "Which month had the most orders?": (
        "SELECT date_trunc('month', ordered), count(*) FROM orders GROUP BY 1 ORDER BY 2 DESC LIMIT 1"
    ),
    "How many orders per customer on average in 2025?": (
        "SELECT avg(n) FROM (SELECT count(*) AS n FROM orders JOIN customers USING (customer_id) "
        "WHERE year(ordered) = 2025 GROUP BY customer_id)"
    ),
    "How many orders over 500 were cancelled?": (
        "SELECT count(*) FROM orders WHERE amount > 500 AND status = 'cancelled'"
    ),
    "Show products that are neither Tea nor Coffee": (
        "SELECT name, product_id FROM products WHERE category NOT IN ('Tea', 'Coffee')"
    ),
    "Which customers have only one order?": (
        "SELECT c.name, c.customer_id, count(*) FROM orders JOIN customers c USING (customer_id) "
        "GROUP BY ALL HAVING count(*) = 1"
    ),
    "Names of customers and the number of their orders": (
        "SELECT name, count(*) FROM orders JOIN customers c USING (customer_id) GROUP BY name, c.customer_id"
    ),
    "What is the total number of units sold?": "SELECT sum(quantity) FROM order_lines",
    # what a word belongs to
    "Which customers have no cancelled orders?": (
        "SELECT name, customer_id FROM customers WHERE customer_id NOT IN ("
        "SELECT customer_id FROM orders WHERE status = 'cancelled' AND customer_id IS NOT NULL)"
    ),
    "What percentage of orders in each channel were cancelled?": (
        "SELECT channel, 100 * avg((status = 'cancelled')::int) FROM orders GROUP BY 1"
    ),
    "How many orders were placed per channel by customers in Germany?": (
        "SELECT channel, count(*) FROM orders JOIN customers USING (customer_id) WHERE country = 'DE' GROUP BY 1"
    ),
    "Products and their price, largest first": "SELECT name, product_id, price FROM products ORDER BY price DESC",
    "What is the price of the product with the most order lines?": (
        "SELECT price, count(*) FROM order_lines JOIN products p USING (product_id) GROUP BY p.product_id, price "
        "ORDER BY 2 DESC LIMIT 1"
    ),
    # what is sold, and rates
    "best selling product": (
        "SELECT p.name, p.product_id, sum(quantity) FROM order_lines JOIN products p USING (product_id) GROUP BY ALL "
        "ORDER BY 3 DESC LIMIT 1"
    ),
    "top 3 best-selling categories": (
        "SELECT category, sum(quantity) FROM order_lines JOIN products USING (product_id) GROUP BY 1 "
        "ORDER BY 2 DESC LIMIT 3"
    ),
    "Which product sold the most units?": (
        "SELECT p.name, p.product_id, sum(quantity) FROM order_lines JOIN products p USING (product_id) GROUP BY ALL "
        "ORDER BY 3 DESC LIMIT 1"
    ),
    "return rate by channel": "SELECT channel, 100 * avg((status = 'returned')::int) FROM orders GROUP BY 1",
    "cancellation rate": "SELECT 100 * avg((status = 'cancelled')::int) FROM orders",
    # statistics
    "90th percentile of the amount of orders": "SELECT quantile_cont(amount, 0.9) FROM orders",
    "quartiles of prices": "SELECT quantile_cont(price, 0.25), median(price), quantile_cont(price, 0.75) FROM products",
    "standard deviation of the price by category": "SELECT category, stddev(price) FROM products GROUP BY 1",
    "correlation between quantity and unit price": "SELECT corr(quantity, unit_price) FROM order_lines",
    "distribution of amounts": (
        "SELECT min(amount), quantile_cont(amount, 0.25), median(amount), quantile_cont(amount, 0.75), max(amount) "
        "FROM orders"
    ),
    "outliers in price": (
        "SELECT name, product_id, price FROM products, (SELECT quantile_cont(price, 0.25) AS low, "
        "quantile_cont(price, 0.75) AS high FROM products) WHERE price > high + 1.5 * (high - low)"
    ),
    "missing values in customers": "SELECT count(*) - count(COLUMNS(*)) FROM customers",
    "number of orders in 2024 vs 2025": (
        "SELECT date_trunc('year', ordered), count(*) FROM orders WHERE year(ordered) IN (2024, 2025) GROUP BY 1"
    ),
    "compare the number of web and app orders": (
        "SELECT channel, count(*) FROM orders WHERE channel IN ('web', 'app') GROUP BY 1"
    ),
    "Which customer has the most orders in each country?": (
        "FROM (SELECT country, name, customer_id, count(*) AS n FROM orders JOIN customers USING (customer_id) "
        "GROUP BY ALL) QUALIFY rank() OVER (PARTITION BY country ORDER BY n DESC) = 1"
    ),
}
