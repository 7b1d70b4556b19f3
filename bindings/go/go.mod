module pagedinfer

go 1.19
