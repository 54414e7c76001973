"""Boosted trees and forests: training, tables of nodes, scoring."""
