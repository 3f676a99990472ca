"""Some text of many kinds, for those who have none: some 600 tokens."""

BUILT_IN = "built-in"  # its name, among those of texts

TEXT = """\
The ferry left the harbour a little after six, when the fog had thinned enough to show the far
shore. Marta counted the crates again: eleven of apples, four of tools, and one long box that
nobody had signed for. "It was on the list yesterday," said the boy at the rope, without looking
up. She wrote a question mark beside it and went below to find the captain.

Water boils at 100 degrees Celsius at sea level, but at 3,000 metres it boils near 90, because the
pressure of the air is lower there. Cooks in the mountains therefore give beans and pasta more
time. The same rule explains why a pressure cooker is fast: in the closed pot the pressure rises,
and the water becomes hotter than 100 degrees before it boils.

def moving_average(values, width):
    total = 0.0
    result = []
    for index, value in enumerate(values):
        total += value
        if index >= width:
            total -= values[index - width]
        result.append(total / min(index + 1, width))
    return result

User: Can you tell me how to get from the station to the museum?
Assistant: Certainly. Leave by the north door, follow Bridge Street for about 400 metres, and turn
left at the fountain. The museum is the white building on your right. It opens at 9:30 and is
closed on Mondays.
User: Thank you! And is there a place to eat nearby?
Assistant: Yes, there are two cafés on the square, and a bakery behind the museum that sells soup.

In 1848 the town had 2,140 inhabitants, three mills and a single bridge. By 1901 it had 18,600
people, a railway, gas lamps in most streets, and a newspaper that came out twice a week. The
council's records name the reasons in the order of their cost: rails, drains, schools.

Le marché ouvre à sept heures; les vendeurs préparent leurs tables dans le froid. Der Zug nach
Norden hat zwanzig Minuten Verspätung. El perro duerme bajo la mesa y no quiere salir.

1. Preheat the oven to 200 degrees.
2. Mix 300 g of flour, 5 g of salt and 7 g of yeast.
3. Add 200 ml of warm water and knead for ten minutes.
4. Let the dough rest for one hour, shape it, and bake it for 25 minutes.

{"name": "sensor-17", "unit": "kPa", "readings": [101.3, 101.1, 100.8], "valid": true}

If every even number above two is the sum of two primes, then so is 28: it is 5 + 23 and also
11 + 17. No one has proved the rule for all even numbers, although computers have checked it far
beyond any number that people use. A proof would have to cover infinitely many cases at once.

The old clock had not been wound for years, yet its hands stood at the right time twice a day, as
her uncle never tired of saying. She turned the key. Something inside gave way, sighed, and began
to tick.
"""
