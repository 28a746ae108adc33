/** A process that ends as soon as it has begun, for tests of those who watch over processes. */
process.stdout.write('the last words\n')
process.exit(3)
